//! The posting list of one term in one project: its header and its blocks, each a row of
//! `postings`.

use hob_index::postings::{HEADER_SEQ, Posting, PostingBlock, TermHeader, decode_block};
use rusqlite::{OptionalExtension, Transaction, params};

use crate::memory::block_limit::BLOCK_LIMIT;

pub(super) struct PostingList<'a> {
    transaction: &'a Transaction<'a>,
    term: &'a str,
    project: i64,
}

impl<'a> PostingList<'a> {
    pub(super) fn new(
        transaction: &'a Transaction<'a>,
        term: &'a str,
        project: i64,
    ) -> PostingList<'a> {
        PostingList { transaction, term, project }
    }

    /// Appends postings that are newer than all others, in order.
    pub(super) fn append(&self, postings: &[Posting]) -> rusqlite::Result<()> {
        let (header, last_block) = self.ends()?;
        let mut header = header.unwrap_or_default();
        let mut last_session = None;
        let mut rest = postings;
        if header.turns > 0
            && let Some(mut block) = last_block
        {
            let mut last = None;
            decode_block(block.first_seq, &block.bytes, |posting| last = Some(posting));
            let here;
            let capacity = BLOCK_LIMIT.capacity_after(block.bytes.len());
            (here, rest) = postings.split_at(capacity.min(postings.len()));
            if !here.is_empty() {
                block.append(last, here);
                self.replace(block.first_seq, &block.bytes)?;
            }
            last_session = Some(last.map_or(0, |last| last.session));
        }
        self.put_blocks(rest)?;
        let is_new = header.turns == 0;
        header += TermHeader::of(last_session, postings);
        if !is_new && self.replace(HEADER_SEQ, &header.encode())? {
            return Ok(());
        }
        self.put(HEADER_SEQ, &header.encode())
    }

    /// Inserts a posting between older and newer ones.
    pub(super) fn insert(&self, posting: Posting) -> rusqlite::Result<()> {
        let mut header = self.header()?.unwrap_or_default();
        let mut all = Vec::new();
        if let Some(block) = self.block_of(posting.seq)? {
            all = block.decode();
            self.delete(block.first_seq)?;
        }
        let place = all.partition_point(|other| other.seq < posting.seq);
        all.insert(place, posting);
        self.put_blocks(&all)?;
        header.turns += 1;
        self.put(HEADER_SEQ, &header.encode())
    }

    /// Removes the posting of a turn.
    pub(super) fn remove(&self, seq: i64) -> rusqlite::Result<()> {
        let mut header = self.header()?.unwrap_or_default();
        let Some(block) = self.block_of(seq)? else { return Ok(()) };
        let mut rest = block.decode();
        let before = rest.len();
        rest.retain(|posting| posting.seq != seq);
        header.turns = header.turns.saturating_sub((before - rest.len()) as u64);
        self.delete(block.first_seq)?;
        self.put_blocks(&rest)?;
        match header.turns {
            0 => self.delete(HEADER_SEQ),
            _ => self.put(HEADER_SEQ, &header.encode()),
        }
    }

    /// Reads the header and the last block. Most lists have only one block, which comes right after
    /// the header, so that one query finds both.
    fn ends(&self) -> rusqlite::Result<(Option<TermHeader>, Option<PostingBlock>)> {
        let mut statement = self.transaction.prepare_cached(
            "SELECT first, run FROM postings WHERE term = ?1 AND project = ?2
             ORDER BY first DESC LIMIT 2",
        )?;
        let mut rows = statement.query(params![self.term, self.project])?;
        let mut last = None;
        while let Some(row) = rows.next()? {
            let (first_seq, bytes) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
            match last {
                _ if first_seq == HEADER_SEQ => {
                    return Ok((Some(TermHeader::decode(bytes)), last));
                }
                None => last = Some(PostingBlock { first_seq, bytes: bytes.to_vec() }),
                Some(_) => return Ok((self.header()?, last)),
            }
        }
        Ok((None, last))
    }

    fn header(&self) -> rusqlite::Result<Option<TermHeader>> {
        self.transaction
            .prepare_cached(
                "SELECT run FROM postings WHERE term = ?1 AND project = ?2 AND first = 0",
            )?
            .query_row(params![self.term, self.project], |row| {
                Ok(TermHeader::decode(row.get_ref(0)?.as_blob()?))
            })
            .optional()
    }

    /// Reads the block that a turn belongs to: the last one that does not begin after it.
    fn block_of(&self, seq: i64) -> rusqlite::Result<Option<PostingBlock>> {
        self.transaction
            .prepare_cached(
                "SELECT first, run FROM postings
                 WHERE term = ?1 AND project = ?2 AND first > 0 AND first <= ?3
                 ORDER BY first DESC LIMIT 1",
            )?
            .query_row(params![self.term, self.project, seq], |row| {
                Ok(PostingBlock { first_seq: row.get(0)?, bytes: row.get(1)? })
            })
            .optional()
    }

    /// Writes postings as blocks of their own.
    fn put_blocks(&self, postings: &[Posting]) -> rusqlite::Result<()> {
        let mut blocks = BLOCK_LIMIT.blocks(postings);
        blocks.try_for_each(|block| self.put(block.first_seq, &block.bytes))
    }

    /// Writes a row, whether there is one or not.
    fn put(&self, first_seq: i64, bytes: &[u8]) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached(
                "INSERT INTO postings (term, project, first, run) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (term, project, first) DO UPDATE SET run = ?4",
            )?
            .execute(params![self.term, self.project, first_seq, bytes])?;
        Ok(())
    }

    /// Updates a row and returns whether there is one. This costs less than [`PostingList::put`].
    fn replace(&self, first_seq: i64, bytes: &[u8]) -> rusqlite::Result<bool> {
        let changed = self
            .transaction
            .prepare_cached(
                "UPDATE postings SET run = ?4 WHERE term = ?1 AND project = ?2 AND first = ?3",
            )?
            .execute(params![self.term, self.project, first_seq, bytes])?;
        Ok(changed > 0)
    }

    fn delete(&self, first_seq: i64) -> rusqlite::Result<()> {
        self.transaction
            .prepare_cached("DELETE FROM postings WHERE term = ?1 AND project = ?2 AND first = ?3")?
            .execute(params![self.term, self.project, first_seq])?;
        Ok(())
    }
}
