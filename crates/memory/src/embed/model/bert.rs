//! BERT: from tokens to a hidden state for each token.
//!
//! The tokens of a batch of texts are the rows of one matrix, without padding. Only attention
//! treats each text by itself.

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut1, Axis, concatenate, s};
use serde::Deserialize;

use super::error::ModelError;
use super::tensors::TensorFile;

/// The fields of `config.json` that describe the network.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Config {
    pub(crate) hidden_size: usize,
    pub(crate) num_hidden_layers: usize,
    pub(crate) num_attention_heads: usize,
    #[serde(default = "default_activation")]
    pub(crate) hidden_act: String,
    #[serde(default = "default_eps")]
    pub(crate) layer_norm_eps: f32,
    #[serde(default)]
    pub(crate) model_type: String,
    #[serde(default = "absolute")]
    pub(crate) position_embedding_type: String,
    #[serde(default, rename = "_name_or_path")]
    pub(crate) name: String,
}

fn default_activation() -> String {
    "gelu".to_owned()
}

fn default_eps() -> f32 {
    1e-12
}

fn absolute() -> String {
    "absolute".to_owned()
}

pub(crate) struct Bert {
    heads: usize,
    word_embeddings: Array2<f32>,
    position_embeddings: Array2<f32>,
    /// The embedding of token type 0. Sentence models use no other.
    token_type_embedding: Array1<f32>,
    embeddings_norm: LayerNorm,
    layers: Vec<Layer>,
}

/// One layer of the encoder.
struct Layer {
    /// The projections to queries, keys and values of all heads, as one matrix.
    query_key_value: Linear,
    attention_output: Linear,
    attention_norm: LayerNorm,
    intermediate: Linear,
    output: Linear,
    output_norm: LayerNorm,
}

impl Bert {
    pub(crate) fn load(tensors: &mut TensorFile, config: &Config) -> Result<Bert, ModelError> {
        // Some files name tensors from the whole model on, some from its parts.
        let prefix = if tensors.has("embeddings.word_embeddings.weight") { "" } else { "bert." };
        let at = |name: &str| format!("{prefix}embeddings.{name}");
        let token_types = tensors.matrix(&at("token_type_embeddings.weight"))?;
        let eps = config.layer_norm_eps;
        let layers = (0..config.num_hidden_layers)
            .map(|number| Layer::load(tensors, &format!("{prefix}encoder.layer.{number}"), eps))
            .collect::<Result<_, _>>()?;
        let bert = Bert {
            heads: config.num_attention_heads,
            word_embeddings: tensors.matrix(&at("word_embeddings.weight"))?,
            position_embeddings: tensors.matrix(&at("position_embeddings.weight"))?,
            token_type_embedding: token_types.row(0).to_owned(),
            embeddings_norm: LayerNorm::load(tensors, &at("LayerNorm"), eps)?,
            layers,
        };
        bert.check_shapes(config, tensors)?;
        Ok(bert)
    }

    /// Checks that all tensors fit each other, so that nothing can be out of range later.
    fn check_shapes(&self, config: &Config, tensors: &TensorFile) -> Result<(), ModelError> {
        let width = config.hidden_size;
        let maps = |linear: &Linear, from: usize, to: usize| linear.weight.dim() == (to, from);
        let layer = |layer: &Layer| {
            let inner = layer.intermediate.weight.dim().0;
            maps(&layer.query_key_value, width, 3 * width)
                && maps(&layer.attention_output, width, width)
                && maps(&layer.intermediate, width, inner)
                && maps(&layer.output, inner, width)
                && layer.output_norm.weight.len() == width
                && layer.attention_norm.weight.len() == width
        };
        let fits = width > 0
            && self.heads > 0
            && width.is_multiple_of(self.heads)
            && self.word_embeddings.dim().1 == width
            && self.position_embeddings.dim().1 == width
            && self.token_type_embedding.len() == width
            && self.embeddings_norm.weight.len() == width
            && self.layers.iter().all(layer);
        if fits { Ok(()) } else { Err(tensors.shape_mismatch()) }
    }

    pub(crate) fn width(&self) -> usize {
        self.token_type_embedding.len()
    }

    pub(crate) fn vocabulary_size(&self) -> usize {
        self.word_embeddings.dim().0
    }

    /// Returns how many tokens a text may have.
    pub(crate) fn max_positions(&self) -> usize {
        self.position_embeddings.dim().0
    }

    /// Returns the hidden states: a row for each token of each text, text after text.
    pub(crate) fn forward(&self, texts: &[Vec<u32>]) -> Array2<f32> {
        let tokens: usize = texts.iter().map(Vec::len).sum();
        let mut hidden = Array2::zeros((tokens, self.width()));
        let tokens = texts.iter().flat_map(|text| text.iter().enumerate());
        for ((position, token), mut row) in tokens.zip(hidden.rows_mut()) {
            row += &self.word_embeddings.row(*token as usize);
            row += &self.position_embeddings.row(position);
            row += &self.token_type_embedding;
        }
        self.embeddings_norm.apply(&mut hidden);
        for layer in &self.layers {
            layer.apply(&mut hidden, texts, self.heads);
        }
        hidden
    }
}

impl Layer {
    fn load(tensors: &mut TensorFile, at: &str, eps: f32) -> Result<Layer, ModelError> {
        let part = |name: &str| format!("{at}.attention.self.{name}");
        let parts = [part("query"), part("key"), part("value")];
        let [query, key, value] = parts.map(|name| Linear::load(tensors, &name));
        let query_key_value =
            Linear::stacked(&[query?, key?, value?]).ok_or_else(|| tensors.shape_mismatch())?;
        Ok(Layer {
            query_key_value,
            attention_output: Linear::load(tensors, &format!("{at}.attention.output.dense"))?,
            attention_norm: LayerNorm::load(
                tensors,
                &format!("{at}.attention.output.LayerNorm"),
                eps,
            )?,
            intermediate: Linear::load(tensors, &format!("{at}.intermediate.dense"))?,
            output: Linear::load(tensors, &format!("{at}.output.dense"))?,
            output_norm: LayerNorm::load(tensors, &format!("{at}.output.LayerNorm"), eps)?,
        })
    }

    fn apply(&self, hidden: &mut Array2<f32>, texts: &[Vec<u32>], heads: usize) {
        let query_key_value = self.query_key_value.apply(&hidden.view());
        let attended = attention(&query_key_value, texts, heads);
        *hidden += &self.attention_output.apply(&attended.view());
        self.attention_norm.apply(hidden);
        let mut intermediate = self.intermediate.apply(&hidden.view());
        intermediate.mapv_inplace(gelu);
        *hidden += &self.output.apply(&intermediate.view());
        self.output_norm.apply(hidden);
    }
}

/// Multi-head self-attention among the tokens of each text.
fn attention(query_key_value: &Array2<f32>, texts: &[Vec<u32>], heads: usize) -> Array2<f32> {
    let width = query_key_value.dim().1 / 3;
    let head_width = width / heads;
    let scale = 1.0 / (head_width as f32).sqrt();
    let mut attended = Array2::zeros((query_key_value.dim().0, width));
    let mut from = 0;
    for text in texts {
        let to = from + text.len();
        for head in 0..heads {
            let part = |index: usize| {
                let start = index * width + head * head_width;
                query_key_value.slice(s![from..to, start..start + head_width])
            };
            let (query, key, value) = (part(0), part(1), part(2));
            let mut scores = query.dot(&key.t());
            for row in scores.rows_mut() {
                softmax(row, scale);
            }
            let columns = head * head_width..(head + 1) * head_width;
            attended.slice_mut(s![from..to, columns]).assign(&scores.dot(&value));
        }
        from = to;
    }
    attended
}

fn softmax(mut row: ArrayViewMut1<'_, f32>, scale: f32) {
    let largest = row.iter().copied().fold(f32::MIN, f32::max);
    row.mapv_inplace(|value| ((value - largest) * scale).exp());
    let sum = row.sum();
    row /= sum;
}

struct Linear {
    weight: Array2<f32>,
    bias: Array1<f32>,
}

impl Linear {
    fn load(tensors: &mut TensorFile, at: &str) -> Result<Linear, ModelError> {
        let weight = tensors.matrix(&format!("{at}.weight"))?;
        let bias = tensors.vector(&format!("{at}.bias"))?;
        if weight.dim().0 == bias.len() {
            Ok(Linear { weight, bias })
        } else {
            Err(tensors.shape_mismatch())
        }
    }

    /// Stacks several maps of the same input into one.
    fn stacked(parts: &[Linear]) -> Option<Linear> {
        let matrices: Vec<ArrayView2<'_, f32>> = parts.iter().map(|p| p.weight.view()).collect();
        let biases: Vec<_> = parts.iter().map(|part| part.bias.view()).collect();
        Some(Linear {
            weight: concatenate(Axis(0), &matrices).ok()?,
            bias: concatenate(Axis(0), &biases).ok()?,
        })
    }

    fn apply(&self, input: &ArrayView2<'_, f32>) -> Array2<f32> {
        input.dot(&self.weight.t()) + &self.bias
    }
}

/// Layer normalisation: scales each row to mean 0 and variance 1, then applies weight and bias.
struct LayerNorm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    eps: f32,
}

impl LayerNorm {
    fn load(tensors: &mut TensorFile, at: &str, eps: f32) -> Result<LayerNorm, ModelError> {
        let weight = tensors.vector(&format!("{at}.weight"))?;
        let bias = tensors.vector(&format!("{at}.bias"))?;
        if weight.len() == bias.len() {
            Ok(LayerNorm { weight, bias, eps })
        } else {
            Err(tensors.shape_mismatch())
        }
    }

    fn apply(&self, hidden: &mut Array2<f32>) {
        for mut row in hidden.rows_mut() {
            let count = row.len() as f32;
            let mean = row.sum() / count;
            row -= mean;
            let variance = row.iter().map(|value| value * value).sum::<f32>() / count;
            row *= 1.0 / (variance + self.eps).sqrt();
            row *= &self.weight;
            row += &self.bias;
        }
    }
}

fn gelu(value: f32) -> f32 {
    0.5 * value * (1.0 + erf(value * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function as a rational approximation, to about 1e-6. It runs in the innermost loop,
/// where calls to `exp` would cost as much as the matrix products.
fn erf(value: f32) -> f32 {
    let x = value.clamp(-4.0, 4.0);
    let square = x * x;
    let numerator = [
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    let denominator = [-2.133_740_6e-4, -1.682_827e-3, -7.373_329_2e-3, -1.426_473_9e-2];
    let numerator = numerator.iter().fold(-2.726_142_3e-10, |sum, next| sum * square + next);
    let denominator = denominator.iter().fold(-1.456_607_2e-5, |sum, next| sum * square + next);
    x * numerator / denominator
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_function_matches_known_values() {
        let known = [
            (0.0, 0.0),
            (0.1, 0.112_462_92),
            (0.5, 0.520_499_9),
            (1.0, 0.842_700_8),
            (2.0, 0.995_322_3),
            (3.0, 0.999_977_9),
            (9.0, 1.0),
        ];
        for (value, expected) in known {
            assert!((erf(value) - expected).abs() < 2e-6, "{value}: {}", erf(value));
            assert!((erf(-value) + expected).abs() < 2e-6, "-{value}: {}", erf(-value));
        }
    }
}
