use std::fs;
use std::path::PathBuf;

use super::*;

/// A tiny model made by `scripts/make-tiny-model`, with the vectors of some texts by the reference
/// libraries.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/data/tiny-model")
}

#[derive(Deserialize)]
struct Expected {
    text: String,
    tokens: Vec<u32>,
    mean: Vec<f32>,
    cls: Vec<f32>,
}

fn expected() -> Vec<Expected> {
    read_json(&folder().join("expected.json")).unwrap()
}

fn near(made: &[i8], expected: &[f32]) -> f32 {
    let length = |sum: f32| sum.sqrt();
    let made: Vec<f32> = made.iter().map(|value| f32::from(*value)).collect();
    let dot: f32 = made.iter().zip(expected).map(|(a, b)| a * b).sum();
    let (a, b): (f32, f32) =
        (made.iter().map(|v| v * v).sum(), expected.iter().map(|v| v * v).sum());
    dot / (length(a) * length(b))
}

/// A copy of the tiny model with some of its files changed: `None` is removed.
fn changed(changes: &[(&str, Option<&[u8]>)]) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    fs::create_dir(copy.path().join("1_Pooling")).unwrap();
    for name in ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json"] {
        fs::copy(folder().join(name), copy.path().join(name)).unwrap();
    }
    for (name, bytes) in changes {
        match bytes {
            Some(bytes) => fs::write(copy.path().join(name), bytes).unwrap(),
            None => fs::remove_file(copy.path().join(name)).unwrap(),
        }
    }
    copy
}

#[test]
fn vectors_equal_those_of_the_reference() {
    let model = SentenceModel::load(&folder()).unwrap();
    assert_eq!((model.width(), model.max_tokens), (32, 64));
    let expected = expected();
    for one in &expected {
        assert_eq!(model.tokenizer.tokens(&one.text, 64), one.tokens, "{}", one.text);
        let made = &model.embed(&[&one.text])[0];
        assert!(near(made, &one.mean) > 0.9999, "{}: {}", one.text, near(made, &one.mean));
    }
    // A batch gives the same vectors as its texts one by one.
    let texts: Vec<&str> = expected.iter().map(|one| one.text.as_str()).collect();
    for (one, made) in expected.iter().zip(model.embed(&texts)) {
        assert!(near(&made, &one.mean) > 0.9999, "{}", one.text);
    }
    let first = br#"{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}"#;
    let copy = changed(&[("1_Pooling/config.json", Some(first))]);
    let other = SentenceModel::load(copy.path()).unwrap();
    for one in &expected {
        assert!(near(&other.embed(&[&one.text])[0], &one.cls) > 0.9999, "{}", one.text);
    }
    assert_ne!(model.name(), other.name(), "their vectors must not be compared");
}

#[test]
fn bge_models_are_pooled_by_cls() {
    let config = fs::read_to_string(folder().join("config.json")).unwrap();
    let config = config.replace("{\n", "{\n \"_name_or_path\": \"BAAI/bge-small-en-v1.5\",\n");
    let pooled = |changes: &[(&str, Option<&[u8]>)]| {
        ModelConfig::read(changed(changes).path()).map(|config| config.pooling).unwrap()
    };
    let none = ("1_Pooling/config.json", None);
    assert_eq!(pooled(&[none]), Pooling::Mean);
    assert_eq!(pooled(&[none, ("config.json", Some(config.as_bytes()))]), Pooling::Cls);
}

#[test]
fn unusable_folder_is_rejected_with_its_reason() {
    let check = |changes: &[(&str, Option<&[u8]>)], words: &str| {
        let copy = changed(changes);
        let error = SentenceModel::load(copy.path()).err().expect("an error").to_string();
        assert!(error.contains(words), "{error}");
    };
    let weights = fs::read(folder().join("model.safetensors")).unwrap();
    let config = fs::read_to_string(folder().join("config.json")).unwrap();
    check(&[("model.safetensors", None)], "No such file");
    check(&[("tokenizer.json", None)], "tokenizer.json");
    check(&[("config.json", None)], "config.json");
    check(&[("config.json", Some(b"{}"))], "cannot parse it");
    check(&[("model.safetensors", Some(b"short"))], "safetensors format");
    check(&[("model.safetensors", Some(&[255; 64]))], "safetensors format");
    check(&[("model.safetensors", Some(&weights[..weights.len() / 2]))], "outside the file");
    let with = |from: &str, to: &str| config.replace(from, to).into_bytes();
    check(&[("config.json", Some(&with("\"bert\"", "\"roberta\"")))], "only bert is supported");
    check(&[("config.json", Some(&with("gelu", "relu")))], "only gelu is supported");
    check(
        &[("config.json", Some(&with("\"hidden_size\": 32", "\"hidden_size\": 31")))],
        "do not fit",
    );
    check(&[("config.json", Some(&with("_layers\": 2", "_layers\": 3")))], "is missing");
    let unigram = br#"{"normalizer": null, "model": {"type": "Unigram", "vocab": []}}"#;
    check(&[("tokenizer.json", Some(unigram))], "WordPiece");
    let error = SentenceModel::check(Path::new("/nowhere/at/all")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all/config.json"), "{error}");
    SentenceModel::check(&folder()).unwrap();
}
