//! A better embedder than the built-in one, from a folder of the user's: a sentence model of the BERT
//! family, such as all-MiniLM-L6-v2 or bge-small-en-v1.5. It takes milliseconds where the table takes
//! microseconds, so turns get its vectors in the background and beside those of the table.

mod bert;
mod weights;
mod wordpiece;

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use ndarray::{ArrayView2, Axis, s};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::embed::embedder::rounded;
use bert::{Bert, Config};
use weights::Weights;
use wordpiece::Tokenizer;

/// The most tokens of a text that count, where the model does not say less. Time grows with them.
const LONGEST: usize = 256;
/// Changes when other vectors are made of the same files.
const VERSION: &str = "1";

/// Why a folder is not a model.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{}: {what}", path.display())]
    Wrong { path: PathBuf, what: String },
}

impl ModelError {
    fn wrong(path: &Path, what: &str) -> ModelError {
        ModelError::Wrong { path: path.to_owned(), what: what.to_owned() }
    }
}

/// How the vectors of a text's tokens become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Mean,
    /// That of the first token stands for all.
    First,
}

/// A model, ready to be used. It holds all its numbers in memory.
pub struct SentenceModel {
    name: String,
    bert: Bert,
    tokenizer: Tokenizer,
    pooling: Pooling,
    longest: usize,
}

/// What can be known of a folder without reading all of it.
struct Plan {
    config: Config,
    tokenizer: Tokenizer,
    pooling: Pooling,
    longest: usize,
}

impl SentenceModel {
    /// Reads a folder. Blocking, some tenths of a second.
    pub fn load(folder: &Path) -> Result<SentenceModel, ModelError> {
        let Plan { config, tokenizer, pooling, longest } = Plan::read(folder)?;
        let path = folder.join("model.safetensors");
        let bert = Bert::load(&mut Weights::open(&path)?, &config)?;
        if tokenizer.greatest() as usize >= bert.vocabulary() {
            return Err(ModelError::wrong(&path, "it has fewer words than tokenizer.json"));
        }
        let longest = longest.min(bert.longest());
        let name = name(folder, pooling, longest)?;
        Ok(SentenceModel { name, bert, tokenizer, pooling, longest })
    }

    /// Whether the folder looks like a model, without the time it takes to read it whole.
    pub fn check(folder: &Path) -> Result<(), ModelError> {
        Plan::read(folder)?;
        Weights::open(&folder.join("model.safetensors")).map(|_| ())
    }

    /// The same for the same numbers, whatever the folder is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn width(&self) -> usize {
        self.bert.width()
    }

    /// The directions of texts. Several at once cost less than one by one. Runs on this thread alone.
    pub fn embed(&self, texts: &[&str]) -> Vec<Vec<i8>> {
        let tokens: Vec<Vec<u32>> =
            texts.iter().map(|text| self.tokenizer.tokens(text, self.longest)).collect();
        let state = self.bert.forward(&tokens);
        let mut from = 0;
        let one = |tokens: &Vec<u32>| {
            let rows = state.slice(s![from..from + tokens.len(), ..]);
            from += tokens.len();
            rounded(&self.pooling.of(&rows))
        };
        tokens.iter().map(one).collect()
    }
}

impl Pooling {
    fn of(self, rows: &ArrayView2<'_, f32>) -> Vec<f32> {
        match self {
            Pooling::First => rows.row(0).to_vec(),
            // The length does not count, so the sum is as good as the mean.
            Pooling::Mean => rows.sum_axis(Axis(0)).to_vec(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::First => "cls",
        }
    }
}

#[derive(Deserialize)]
struct PoolingFile {
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
}

#[derive(Deserialize)]
struct LengthFile {
    max_seq_length: Option<usize>,
}

impl Plan {
    fn read(folder: &Path) -> Result<Plan, ModelError> {
        let path = folder.join("config.json");
        let config: Config = read_json(&path)?;
        let wrong = |what: String| Err(ModelError::wrong(&path, &what));
        if !config.model_type.is_empty() && config.model_type != "bert" {
            return wrong(format!("model_type is {:?}, and only bert is known", config.model_type));
        }
        if config.hidden_act != "gelu" {
            return wrong(format!("hidden_act is {:?}, and only gelu is known", config.hidden_act));
        }
        if config.position_embedding_type != "absolute" {
            return wrong("position_embedding_type is not absolute".to_owned());
        }
        let pooling = pooling(folder, &config)?;
        let lengths = folder.join("sentence_bert_config.json");
        let said = match lengths.exists() {
            true => read_json::<LengthFile>(&lengths)?.max_seq_length,
            false => None,
        };
        let longest = said.unwrap_or(LONGEST).clamp(3, LONGEST);
        let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"))?;
        Ok(Plan { config, tokenizer, pooling, longest })
    }
}

/// As the folder says; where it says nothing, the mean, but for the family of bge.
fn pooling(folder: &Path, config: &Config) -> Result<Pooling, ModelError> {
    let path = folder.join("1_Pooling/config.json");
    if path.exists() {
        let said: PoolingFile = read_json(&path)?;
        return match (said.pooling_mode_cls_token, said.pooling_mode_mean_tokens) {
            (true, false) => Ok(Pooling::First),
            (false, true) => Ok(Pooling::Mean),
            _ => Err(ModelError::wrong(&path, "only the pooling of mean or cls is known")),
        };
    }
    let named = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_bge = named.contains("bge") || config.name.to_lowercase().contains("bge");
    Ok(if is_bge { Pooling::First } else { Pooling::Mean })
}

/// Says by what the vectors are made: the files, and what is done with them.
fn name(folder: &Path, pooling: Pooling, longest: usize) -> Result<String, ModelError> {
    let mut digest = Sha256::new();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let path = folder.join(file);
        let read = || -> io::Result<()> {
            let mut file = File::open(&path)?;
            let mut piece = vec![0; 1 << 20];
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok(()),
                    bytes => digest.update(&piece[..bytes]),
                }
            }
        };
        let mut read = read;
        read().map_err(|error| ModelError::Unreadable { path: path.clone(), error })?;
    }
    let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("bert-{hex}-{}-{longest}-{VERSION}", pooling.as_str()))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ModelError> {
    let bytes = std::fs::read(path)
        .map_err(|error| ModelError::Unreadable { path: path.to_owned(), error })?;
    serde_json::from_slice(&bytes)
        .map_err(|error| ModelError::wrong(path, &format!("it can't be understood: {error}")))
}

#[cfg(test)]
mod tests;
