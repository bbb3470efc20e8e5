//! `POST /files`, and files in a run.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::setup::{Setup, setup};

impl Setup {
    fn upload(&self, name: &str, bytes: &[u8]) -> (String, PathBuf) {
        let answer = self.server.upload(Some(&self.token), name, bytes);
        assert_eq!(answer.status, 200, "{}", answer.text);
        let body = answer.json();
        assert_eq!(body["ok"], true);
        let text = |key: &str| body[key].as_str().expect(key).to_owned();
        (text("file_id"), text("path").into())
    }

    fn run_as(&self, token: &str, body: &Value) -> (u16, Value) {
        let answer = self.server.post("/run", Some(token), body);
        (answer.status, answer.json())
    }

    fn stored(&self) -> usize {
        hob_testkit::leak::files_below(&self.home.hob_home().join("files")).len()
    }
}

#[test]
fn prompt_names_the_paths_of_its_files() {
    let setup = setup("");
    let (first, first_path) = setup.upload("notes.txt", b"some notes");
    let (second, second_path) = setup.upload("../../e vil.sh", &[0, 255, 10, 13]);
    assert_eq!(std::fs::read(&first_path).unwrap(), b"some notes");
    assert_eq!(std::fs::read(&second_path).unwrap(), [0, 255, 10, 13]);
    assert!(second_path.starts_with(setup.home.hob_home().join("files/tests")), "{second_path:?}");
    assert!(second_path.ends_with("e_vil.sh"));
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&first_path), mode(first_path.parent().unwrap())), (0o600, 0o700));

    let (status, body) =
        setup.run_as(&setup.token, &json!({"prompt": "hello", "files": [first, second]}));
    assert_eq!(status, 200, "{body}");
    let said = body["result"].as_str().unwrap();
    for path in [&first_path, &second_path] {
        assert!(said.contains(&path.display().to_string()), "{said}");
    }
    assert!(said.ends_with("hello"), "{said}");
}

#[test]
fn file_of_another_app_is_unknown() {
    let setup = setup("");
    let other = setup.home.app("other");
    let (id, path) = setup.upload("secret.txt", b"x");
    for (token, id) in [(&other, id.as_str()), (&setup.token, "nope"), (&setup.token, "../tests")] {
        let (status, body) = setup.run_as(token, &json!({"prompt": "x", "files": [id]}));
        assert_eq!((status, &body["code"]), (400, &json!("unknown_file")), "{body}");
    }
    // A later app of the same name finds nothing of the former one.
    assert!(setup.home.run(&["app", "revoke", "tests", "--yes"]).status.success());
    assert!(!path.exists());
    let token = setup.home.app("tests");
    let (status, _) = setup.run_as(&token, &json!({"prompt": "x", "files": [id]}));
    assert_eq!(status, 400);
}

#[test]
fn bad_upload_is_refused_and_leaves_nothing() {
    let setup = setup("max_file_bytes = 1000\n");
    let token = Some(setup.token.as_str());
    assert_eq!(setup.server.upload(None, "x", b"x").status, 401);
    assert_eq!(setup.server.upload(token, "x", &[7; 1000]).status, 200);
    for size in [1001, 3_000_000] {
        let large = setup.server.upload(token, "x", &vec![7; size]);
        assert_eq!((large.status, &large.json()["code"]), (413, &json!("too_large")));
    }
    let form = "multipart/form-data; boundary=edge";
    for (kind, body) in [
        ("application/json", "{}"),
        ("multipart/form-data", "x"),
        (form, ""),
        (form, "--edge--\r\n"),
        (form, "--edge\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\nb\r\n--edge--\r\n"),
        (
            form,
            "--edge\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\nbroken off",
        ),
        (
            form,
            "--edge\r\ncontent-disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\none\r\n\
             --edge\r\ncontent-disposition: form-data; name=\"g\"; filename=\"g\"\r\n\r\ntwo\r\n--edge--\r\n",
        ),
    ] {
        let answer = setup.server.call_with("POST", "/files", token, Some((kind, body.as_bytes())));
        assert_eq!(answer.status, 400, "{kind} {body:?}: {}", answer.text);
        assert_eq!(answer.json()["ok"], false);
    }
    assert_eq!(setup.stored(), 1);
}
