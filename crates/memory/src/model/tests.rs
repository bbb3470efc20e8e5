use super::*;

#[test]
fn real() {
    let Some(folder) = std::env::var_os("REAL_MODEL") else { return };
    let start = std::time::Instant::now();
    let model = SentenceModel::load(Path::new(&folder)).unwrap();
    println!("{} {:?}", model.name(), start.elapsed());
    let texts = std::fs::read_to_string("/tmp/up/texts.json").unwrap();
    let texts: Vec<String> = serde_json::from_str(&texts).unwrap();
    let tokens: Vec<Vec<u32>> = texts.iter().map(|t| model.tokenizer.tokens(t, model.longest)).collect();
    std::fs::write("/tmp/up/tokens.json", serde_json::to_string(&tokens).unwrap()).unwrap();
    for batch in [1, 4, 8, 16, 32] {
        let start = std::time::Instant::now();
        let mut done = 0;
        let mut out = Vec::new();
        for part in texts.chunks(batch).take(256 / batch) {
            let part: Vec<&str> = part.iter().map(String::as_str).collect();
            done += part.len();
            out.extend(model.embed(&part));
        }
        let tokens: usize = tokens[..done].iter().map(Vec::len).sum();
        println!("batch {batch}: {:?} a turn, {} tokens a turn", start.elapsed() / done as u32, tokens / done);
        std::fs::write("/tmp/up/vectors.json", serde_json::to_string(&out).unwrap()).unwrap();
    }
    let start = std::time::Instant::now();
    for _ in 0..20 { model.embed(&["why did the login test fail on CI last week?"]); }
    println!("question {:?}", start.elapsed() / 20);
}
