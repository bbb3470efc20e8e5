/// Returns the path that a `file:` URI names. Returns `None` for other URIs, and for those of other machines.
pub fn path_of_uri(uri: &str) -> Option<String> {
    let path = uri.strip_prefix("file://")?;
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let escaped = (*first == b'%').then(|| after.get(..2)).flatten();
        let escaped = escaped.and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_files_name_paths() {
        let check = |uri: &str, expect: Option<&str>| {
            assert_eq!(path_of_uri(uri).as_deref(), expect, "{uri}")
        };
        check("file:///home/me/My%20Project", Some("/home/me/My Project"));
        check("file:///w/100%", Some("/w/100%"));
        check("file:///%c3%a9", Some("/é"));
        check("file:///%ff", None);
        check("file://host/w", None);
        check("vscode-remote://ssh/w", None);
    }
}
