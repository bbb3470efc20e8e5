//! The sentence model as a whole: tokens, BERT, pooling.

use std::io::{self, Read};
use std::path::Path;

use hob_files::owned;
use ndarray::{ArrayView2, Axis, s};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::bert::{Bert, Config};
use super::error::{ModelError, read_json};
use super::tensors::TensorFile;
use super::wordpiece::Tokenizer;
use crate::embed::quantize::quantized;

/// The most tokens of a text that are embedded, unless the model allows fewer. Time grows with
/// them.
const MAX_TOKENS: usize = 256;
/// The version of the embedding. Raise it when the same files give other vectors.
const VERSION: &str = "1";

/// How the vectors of a text's tokens are combined into one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooling {
    Mean,
    /// The vector of the first token, `[CLS]`.
    Cls,
}

/// A loaded sentence model. All its weights are in memory.
pub struct SentenceModel {
    name: String,
    bert: Bert,
    tokenizer: Tokenizer,
    pooling: Pooling,
    max_tokens: usize,
}

/// The configuration of a model: everything in its folder but the weights.
struct ModelConfig {
    bert: Config,
    tokenizer: Tokenizer,
    pooling: Pooling,
    max_tokens: usize,
}

impl SentenceModel {
    /// Loads the model of a folder. Blocks for some tenths of a second.
    pub fn load(folder: &Path) -> Result<SentenceModel, ModelError> {
        let ModelConfig { bert: config, tokenizer, pooling, max_tokens } =
            ModelConfig::read(folder)?;
        let path = folder.join("model.safetensors");
        let bert = Bert::load(&mut TensorFile::open(&path)?, &config)?;
        if tokenizer.max_token() as usize >= bert.vocabulary_size() {
            return Err(ModelError::unsupported(
                &path,
                "its vocabulary is smaller than that of tokenizer.json",
            ));
        }
        let max_tokens = max_tokens.min(bert.max_positions());
        let name = name(folder, pooling, max_tokens)?;
        Ok(SentenceModel { name, bert, tokenizer, pooling, max_tokens })
    }

    /// Checks that a folder looks like a model, without reading the weights.
    pub fn check(folder: &Path) -> Result<(), ModelError> {
        ModelConfig::read(folder)?;
        TensorFile::open(&folder.join("model.safetensors")).map(|_| ())
    }

    /// Returns a name that depends on the model's files and use alone, not on the name of its
    /// folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn width(&self) -> usize {
        self.bert.width()
    }

    /// Returns the vectors of texts. A batch costs less than its texts one by one. Runs on the
    /// calling thread alone.
    pub fn embed(&self, texts: &[&str]) -> Vec<Vec<i8>> {
        let tokens: Vec<Vec<u32>> =
            texts.iter().map(|text| self.tokenizer.tokens(text, self.max_tokens)).collect();
        let hidden = self.bert.forward(&tokens);
        let mut from = 0;
        let vector = |tokens: &Vec<u32>| {
            let rows = hidden.slice(s![from..from + tokens.len(), ..]);
            from += tokens.len();
            quantized(&self.pooling.pool(&rows))
        };
        tokens.iter().map(vector).collect()
    }
}

impl Pooling {
    fn pool(self, rows: &ArrayView2<'_, f32>) -> Vec<f32> {
        match self {
            Pooling::Cls => rows.row(0).to_vec(),
            // Only the direction is kept, so the sum is as good as the mean.
            Pooling::Mean => rows.sum_axis(Axis(0)).to_vec(),
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Pooling::Mean => "mean",
            Pooling::Cls => "cls",
        }
    }
}

/// The file `1_Pooling/config.json`.
#[derive(Deserialize)]
struct PoolingFile {
    #[serde(default)]
    pooling_mode_cls_token: bool,
    #[serde(default)]
    pooling_mode_mean_tokens: bool,
}

/// The file `sentence_bert_config.json`.
#[derive(Deserialize)]
struct SentenceBertFile {
    max_seq_length: Option<usize>,
}

impl ModelConfig {
    fn read(folder: &Path) -> Result<ModelConfig, ModelError> {
        let path = folder.join("config.json");
        let bert: Config = read_json(&path)?;
        let unsupported = |reason: String| Err(ModelError::unsupported(&path, &reason));
        if !bert.model_type.is_empty() && bert.model_type != "bert" {
            return unsupported(format!(
                "model_type is {:?}; only bert is supported",
                bert.model_type
            ));
        }
        if bert.hidden_act != "gelu" {
            return unsupported(format!(
                "hidden_act is {:?}; only gelu is supported",
                bert.hidden_act
            ));
        }
        if bert.position_embedding_type != "absolute" {
            return unsupported("position_embedding_type is not absolute".to_owned());
        }
        let pooling = pooling(folder, &bert)?;
        let path = folder.join("sentence_bert_config.json");
        let configured = match path.exists() {
            true => read_json::<SentenceBertFile>(&path)?.max_seq_length,
            false => None,
        };
        let max_tokens = configured.unwrap_or(MAX_TOKENS).clamp(3, MAX_TOKENS);
        let tokenizer = Tokenizer::load(&folder.join("tokenizer.json"))?;
        Ok(ModelConfig { bert, tokenizer, pooling, max_tokens })
    }
}

/// Returns the pooling that the folder configures. Without a configuration it is the mean, except
/// for the bge family, whose models are trained with `[CLS]`.
fn pooling(folder: &Path, config: &Config) -> Result<Pooling, ModelError> {
    let path = folder.join("1_Pooling/config.json");
    if path.exists() {
        let file: PoolingFile = read_json(&path)?;
        return match (file.pooling_mode_cls_token, file.pooling_mode_mean_tokens) {
            (true, false) => Ok(Pooling::Cls),
            (false, true) => Ok(Pooling::Mean),
            _ => Err(ModelError::unsupported(&path, "only mean and cls pooling are supported")),
        };
    }
    let folder_name = folder.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    let is_bge = folder_name.contains("bge") || config.name.to_lowercase().contains("bge");
    Ok(if is_bge { Pooling::Cls } else { Pooling::Mean })
}

/// Names the vectors of a model by a digest of its files and by how they are used.
fn name(folder: &Path, pooling: Pooling, max_tokens: usize) -> Result<String, ModelError> {
    let mut digest = Sha256::new();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let path = folder.join(file);
        update_from_file(&mut digest, &path)
            .map_err(|error| ModelError::Unreadable { path: path.clone(), error })?;
    }
    let hex: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("bert-{hex}-{}-{max_tokens}-{VERSION}", pooling.as_str()))
}

fn update_from_file(digest: &mut Sha256, path: &Path) -> io::Result<()> {
    let mut file = owned::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            bytes => digest.update(&buffer[..bytes]),
        }
    }
}

#[cfg(test)]
#[path = "sentence_model_tests.rs"]
mod tests;
