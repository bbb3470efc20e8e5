//! Reading `model.safetensors`: a header that says where each tensor lies, and the numbers.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ndarray::{Array1, Array2};
use serde::Deserialize;

use super::ModelError;

/// A header is some kilobytes; a longer one is something else.
const LONGEST_HEADER: u64 = 16 << 20;

/// A file of tensors. Each is read when it is asked for, so that nothing is in memory twice.
pub(crate) struct Weights {
    path: PathBuf,
    file: File,
    /// Where the numbers begin, and how many bytes of them there are.
    start: u64,
    length: u64,
    tensors: HashMap<String, Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl Weights {
    pub(crate) fn open(path: &Path) -> Result<Weights, ModelError> {
        let unreadable = |error| ModelError::Unreadable { path: path.to_owned(), error };
        let wrong = |what: &str| ModelError::wrong(path, what);
        let mut file = File::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|_| wrong("it is not in the safetensors format"))?;
        let long = u64::from_le_bytes(head);
        if long > LONGEST_HEADER || long > size.saturating_sub(8) {
            return Err(wrong("it is not in the safetensors format"));
        }
        let mut header = vec![0; long as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        let mut header: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&header)
                .map_err(|_| wrong("it is not in the safetensors format"))?;
        header.remove("__metadata__");
        let tensors = header
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|_| wrong("it is not in the safetensors format"))?;
        let start = long + 8;
        Ok(Weights { path: path.to_owned(), file, start, length: size - start, tensors })
    }

    /// Whether there is a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn matrix(&mut self, name: &str) -> Result<Array2<f32>, ModelError> {
        match self.read(name)? {
            (shape, numbers) if shape.len() == 2 => {
                Array2::from_shape_vec((shape[0], shape[1]), numbers)
                    .map_err(|_| self.wrong(name, "has another shape than it says"))
            }
            _ => Err(self.wrong(name, "is not a matrix")),
        }
    }

    pub(crate) fn row(&mut self, name: &str) -> Result<Array1<f32>, ModelError> {
        match self.read(name)? {
            (shape, numbers) if shape.len() == 1 => Ok(Array1::from_vec(numbers)),
            _ => Err(self.wrong(name, "is not a single row")),
        }
    }

    fn read(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f32>), ModelError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(self.wrong(name, "is missing"));
        };
        if tensor.dtype != "F32" {
            return Err(self.wrong(name, "is not of 32-bit floating-point numbers (F32)"));
        }
        let (from, to) = tensor.data_offsets;
        let shape = tensor.shape.clone();
        let count = shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        let bytes = to.checked_sub(from).filter(|_| to <= self.length);
        if count.and_then(|count| count.checked_mul(4)).map(|bytes| bytes as u64) != bytes {
            return Err(self.wrong(name, "does not lie where the header says"));
        }
        let numbers = self
            .numbers(from, count.unwrap_or_default())
            .map_err(|error| ModelError::Unreadable { path: self.path.clone(), error })?;
        Ok((shape, numbers))
    }

    fn numbers(&mut self, from: u64, count: usize) -> io::Result<Vec<f32>> {
        self.file.seek(SeekFrom::Start(self.start + from))?;
        let mut numbers = Vec::with_capacity(count);
        let mut piece = vec![0; (count * 4).min(1 << 20)];
        while numbers.len() < count {
            let wanted = piece.len().min((count - numbers.len()) * 4);
            self.file.read_exact(&mut piece[..wanted])?;
            let four = piece[..wanted].chunks_exact(4);
            numbers.extend(four.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
        Ok(numbers)
    }

    /// The error of parts that don't fit each other.
    pub(crate) fn unfit(&self) -> ModelError {
        ModelError::wrong(&self.path, "its parts don't fit each other and config.json")
    }

    fn wrong(&self, name: &str, what: &str) -> ModelError {
        ModelError::wrong(&self.path, &format!("its tensor {name} {what}"))
    }
}
