//! Reading `model.safetensors`: a JSON header with the name, type, shape and offsets of each
//! tensor, then the tensors' values.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use hob_files::owned;
use ndarray::{Array1, Array2};
use serde::Deserialize;

use super::error::ModelError;

/// A header has some kilobytes. A file with a larger one is not a safetensors file.
const MAX_HEADER_BYTES: u64 = 16 << 20;

/// An open file of tensors. Each tensor is read on request, so that none is in memory twice.
pub(crate) struct TensorFile {
    path: PathBuf,
    file: File,
    /// The offset of the first tensor, and the bytes of all tensors.
    data_start: u64,
    data_bytes: u64,
    tensors: HashMap<String, Tensor>,
}

#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

impl TensorFile {
    pub(crate) fn open(path: &Path) -> Result<TensorFile, ModelError> {
        let unreadable = |error| ModelError::Unreadable { path: path.to_owned(), error };
        let malformed = || ModelError::unsupported(path, "it is not in the safetensors format");
        let mut file = owned::open(path).map_err(unreadable)?;
        let size = file.metadata().map_err(unreadable)?.len();
        let mut head = [0; 8];
        file.read_exact(&mut head).map_err(|_| malformed())?;
        let header_bytes = u64::from_le_bytes(head);
        if header_bytes > MAX_HEADER_BYTES || header_bytes > size.saturating_sub(8) {
            return Err(malformed());
        }
        let mut header = vec![0; header_bytes as usize];
        file.read_exact(&mut header).map_err(unreadable)?;
        let mut header: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(&header).map_err(|_| malformed())?;
        header.remove("__metadata__");
        let tensors = header
            .into_iter()
            .map(|(name, value)| Ok((name, serde_json::from_value(value)?)))
            .collect::<Result<_, serde_json::Error>>()
            .map_err(|_| malformed())?;
        let data_start = header_bytes + 8;
        let data_bytes = size - data_start;
        Ok(TensorFile { path: path.to_owned(), file, data_start, data_bytes, tensors })
    }

    /// Returns whether the file has a tensor of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tensors.contains_key(name)
    }

    pub(crate) fn matrix(&mut self, name: &str) -> Result<Array2<f32>, ModelError> {
        match self.read(name)? {
            (shape, values) if shape.len() == 2 => {
                Array2::from_shape_vec((shape[0], shape[1]), values)
                    .map_err(|_| self.tensor_error(name, "does not have its declared shape"))
            }
            _ => Err(self.tensor_error(name, "is not a matrix")),
        }
    }

    pub(crate) fn vector(&mut self, name: &str) -> Result<Array1<f32>, ModelError> {
        match self.read(name)? {
            (shape, values) if shape.len() == 1 => Ok(Array1::from_vec(values)),
            _ => Err(self.tensor_error(name, "is not a vector")),
        }
    }

    fn read(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f32>), ModelError> {
        let Some(tensor) = self.tensors.get(name) else {
            return Err(self.tensor_error(name, "is missing"));
        };
        if tensor.dtype != "F32" {
            return Err(self.tensor_error(name, "is not of 32-bit floating-point numbers (F32)"));
        }
        let (from, to) = tensor.data_offsets;
        let shape = tensor.shape.clone();
        let count = shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        let bytes = to.checked_sub(from).filter(|_| to <= self.data_bytes);
        if count.and_then(|count| count.checked_mul(4)).map(|bytes| bytes as u64) != bytes {
            return Err(self.tensor_error(name, "lies outside the file"));
        }
        let values = self
            .values(from, count.unwrap_or_default())
            .map_err(|error| ModelError::Unreadable { path: self.path.clone(), error })?;
        Ok((shape, values))
    }

    fn values(&mut self, from: u64, count: usize) -> io::Result<Vec<f32>> {
        self.file.seek(SeekFrom::Start(self.data_start + from))?;
        let mut values = Vec::with_capacity(count);
        let mut buffer = vec![0; (count * 4).min(1 << 20)];
        while values.len() < count {
            let bytes = buffer.len().min((count - values.len()) * 4);
            self.file.read_exact(&mut buffer[..bytes])?;
            let words = buffer[..bytes].chunks_exact(4);
            values.extend(words.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        }
        Ok(values)
    }

    /// Returns the error of tensors whose shapes do not fit each other.
    pub(crate) fn shape_mismatch(&self) -> ModelError {
        ModelError::unsupported(&self.path, "its tensors do not fit each other and config.json")
    }

    fn tensor_error(&self, name: &str, what: &str) -> ModelError {
        ModelError::unsupported(&self.path, &format!("tensor {name} {what}"))
    }
}
