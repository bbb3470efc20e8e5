//! BERT: from numbers of tokens to a vector for each token. Several texts go through it at once, one
//! behind the other without anything between them; only attention looks at each by itself.

use ndarray::{Array1, Array2, ArrayView2, ArrayViewMut1, Axis, concatenate, s};
use serde::Deserialize;

use super::ModelError;
use super::weights::Weights;

/// What `config.json` says about the network.
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
    words: Array2<f32>,
    places: Array2<f32>,
    /// What all tokens of a first text have in common.
    first: Array1<f32>,
    norm: Norm,
    layers: Vec<Layer>,
}

struct Layer {
    /// Questions, keys and values of all heads beside each other.
    asking: Linear,
    gathered: Linear,
    after_attention: Norm,
    wide: Linear,
    narrow: Linear,
    after: Norm,
}

impl Bert {
    pub(crate) fn load(weights: &mut Weights, config: &Config) -> Result<Bert, ModelError> {
        // Some files name the whole network, some only its parts.
        let prefix = if weights.has("embeddings.word_embeddings.weight") { "" } else { "bert." };
        let at = |name: &str| format!("{prefix}embeddings.{name}");
        let kinds = weights.matrix(&at("token_type_embeddings.weight"))?;
        let eps = config.layer_norm_eps;
        let layers = (0..config.num_hidden_layers)
            .map(|number| Layer::load(weights, &format!("{prefix}encoder.layer.{number}"), eps))
            .collect::<Result<_, _>>()?;
        let bert = Bert {
            heads: config.num_attention_heads,
            words: weights.matrix(&at("word_embeddings.weight"))?,
            places: weights.matrix(&at("position_embeddings.weight"))?,
            first: kinds.row(0).to_owned(),
            norm: Norm::load(weights, &at("LayerNorm"), eps)?,
            layers,
        };
        bert.check(config, weights)?;
        Ok(bert)
    }

    /// All parts must fit each other: after this nothing can be out of range.
    fn check(&self, config: &Config, weights: &Weights) -> Result<(), ModelError> {
        let width = config.hidden_size;
        let square = |linear: &Linear, from: usize, to: usize| linear.weight.dim() == (to, from);
        let layer = |layer: &Layer| {
            let inner = layer.wide.weight.dim().0;
            square(&layer.asking, width, 3 * width)
                && square(&layer.gathered, width, width)
                && square(&layer.wide, width, inner)
                && square(&layer.narrow, inner, width)
                && layer.after.scale.len() == width
                && layer.after_attention.scale.len() == width
        };
        let fits = width > 0
            && self.heads > 0
            && width.is_multiple_of(self.heads)
            && [self.words.dim().1, self.places.dim().1, self.first.len()] == [width; 3]
            && self.norm.scale.len() == width
            && self.layers.iter().all(layer);
        if fits { Ok(()) } else { Err(weights.unfit()) }
    }

    pub(crate) fn width(&self) -> usize {
        self.first.len()
    }

    /// How many words there are.
    pub(crate) fn vocabulary(&self) -> usize {
        self.words.dim().0
    }

    /// How many tokens a text may have.
    pub(crate) fn longest(&self) -> usize {
        self.places.dim().0
    }

    /// A row for each token of each text, text behind text.
    pub(crate) fn forward(&self, texts: &[Vec<u32>]) -> Array2<f32> {
        let all: usize = texts.iter().map(Vec::len).sum();
        let mut state = Array2::zeros((all, self.width()));
        let tokens = texts.iter().flat_map(|text| text.iter().enumerate());
        for ((place, token), mut row) in tokens.zip(state.rows_mut()) {
            row += &self.words.row(*token as usize);
            row += &self.places.row(place);
            row += &self.first;
        }
        self.norm.apply(&mut state);
        for layer in &self.layers {
            layer.apply(&mut state, texts, self.heads);
        }
        state
    }
}

impl Layer {
    fn load(weights: &mut Weights, at: &str, eps: f32) -> Result<Layer, ModelError> {
        let part = |name: &str| format!("{at}.attention.self.{name}");
        let parts = [part("query"), part("key"), part("value")];
        let [query, key, value] = parts.map(|name| Linear::load(weights, &name));
        let asking = Linear::beside(&[query?, key?, value?]).ok_or_else(|| weights.unfit())?;
        Ok(Layer {
            asking,
            gathered: Linear::load(weights, &format!("{at}.attention.output.dense"))?,
            after_attention: Norm::load(weights, &format!("{at}.attention.output.LayerNorm"), eps)?,
            wide: Linear::load(weights, &format!("{at}.intermediate.dense"))?,
            narrow: Linear::load(weights, &format!("{at}.output.dense"))?,
            after: Norm::load(weights, &format!("{at}.output.LayerNorm"), eps)?,
        })
    }

    fn apply(&self, state: &mut Array2<f32>, texts: &[Vec<u32>], heads: usize) {
        let asked = self.asking.apply(&state.view());
        *state += &self.gathered.apply(&attention(&asked, texts, heads).view());
        self.after_attention.apply(state);
        let mut inner = self.wide.apply(&state.view());
        inner.mapv_inplace(gelu);
        *state += &self.narrow.apply(&inner.view());
        self.after.apply(state);
    }
}

/// What each token takes from the others of its text.
fn attention(asked: &Array2<f32>, texts: &[Vec<u32>], heads: usize) -> Array2<f32> {
    let width = asked.dim().1 / 3;
    let part = width / heads;
    let scale = 1.0 / (part as f32).sqrt();
    let mut gathered = Array2::zeros((asked.dim().0, width));
    let mut from = 0;
    for text in texts {
        let to = from + text.len();
        for head in 0..heads {
            let piece = |which: usize| {
                let start = which * width + head * part;
                asked.slice(s![from..to, start..start + part])
            };
            let mut shares = piece(0).dot(&piece(1).t());
            for row in shares.rows_mut() {
                softmax(row, scale);
            }
            let mut here = gathered.slice_mut(s![from..to, head * part..(head + 1) * part]);
            here.assign(&shares.dot(&piece(2)));
        }
        from = to;
    }
    gathered
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
    fn load(weights: &mut Weights, at: &str) -> Result<Linear, ModelError> {
        let weight = weights.matrix(&format!("{at}.weight"))?;
        let bias = weights.row(&format!("{at}.bias"))?;
        if weight.dim().0 == bias.len() {
            Ok(Linear { weight, bias })
        } else {
            Err(weights.unfit())
        }
    }

    /// Several of the same input as one.
    fn beside(parts: &[Linear]) -> Option<Linear> {
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

/// Brings each row to mean 0 and variance 1.
struct Norm {
    scale: Array1<f32>,
    shift: Array1<f32>,
    eps: f32,
}

impl Norm {
    fn load(weights: &mut Weights, at: &str, eps: f32) -> Result<Norm, ModelError> {
        let scale = weights.row(&format!("{at}.weight"))?;
        let shift = weights.row(&format!("{at}.bias"))?;
        if scale.len() == shift.len() {
            Ok(Norm { scale, shift, eps })
        } else {
            Err(weights.unfit())
        }
    }

    fn apply(&self, state: &mut Array2<f32>) {
        for mut row in state.rows_mut() {
            let count = row.len() as f32;
            let mean = row.sum() / count;
            row -= mean;
            let variance = row.iter().map(|value| value * value).sum::<f32>() / count;
            row *= 1.0 / (variance + self.eps).sqrt();
            row *= &self.scale;
            row += &self.shift;
        }
    }
}

fn gelu(value: f32) -> f32 {
    0.5 * value * (1.0 + erf(value * std::f32::consts::FRAC_1_SQRT_2))
}

/// The error function as a quotient of polynomials, to about 1e-6: it stands in the innermost loop,
/// where calls to `exp` would cost as much as the multiplications.
fn erf(value: f32) -> f32 {
    let x = value.clamp(-4.0, 4.0);
    let square = x * x;
    let above = [
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_4e-5,
        -7.349_906_3e-4,
        -2.954_6e-3,
        -1.609_603_3e-2,
    ];
    let below = [-2.133_740_6e-4, -1.682_827e-3, -7.373_329_2e-3, -1.426_473_9e-2];
    let above = above.iter().fold(-2.726_142_3e-10, |sum, next| sum * square + next);
    let below = below.iter().fold(-1.456_607_2e-5, |sum, next| sum * square + next);
    x * above / below
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_right() {
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
