use axum::http::HeaderValue;
use axum::http::header::HeaderName;

use super::*;

const FILE: &str = r#"[
    {"name": "shop", "key": "k-shop", "tenants": ["acme"], "tables": ["orders", "returns"]},
    {"name": "operator", "key": "k-operator", "tenants": ["*"], "tables": ["*"]},
    {"name": "hashed", "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
     "tenants": ["acme", "other"], "tables": ["*"]}
]"#;

fn with(name: &'static str, value: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).expect("a value"));
    headers
}

fn write(folder: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("keys.json");
    std::fs::write(&path, text).expect("a file");
    path
}

#[test]
fn rights() {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access::open(&write(&folder, FILE)).expect("it is sound");
    let cases = [
        (with("authorization", "Bearer k-shop"), "acme", "orders", Ok(())),
        (with("authorization", "bearer  k-shop"), "acme", "returns", Ok(())),
        (with("x-api-key", "k-shop"), "acme", "orders", Ok(())),
        (with("authorization", "Bearer k-shop"), "acme", "users", Err(Denied::Forbidden)),
        (with("authorization", "Bearer k-shop"), "other", "orders", Err(Denied::Forbidden)),
        (with("authorization", "Bearer k-shop"), "*", "orders", Err(Denied::Forbidden)),
        (with("authorization", "Bearer k-operator"), "anybody", "anything", Ok(())),
        (with("authorization", "Bearer test"), "other", "anything", Ok(())),
        (with("authorization", "Bearer test"), "third", "anything", Err(Denied::Forbidden)),
        (with("authorization", "Bearer K-SHOP"), "acme", "orders", Err(Denied::Unknown)),
        (with("authorization", "Basic k-shop"), "acme", "orders", Err(Denied::Unknown)),
        (with("authorization", "k-shop"), "acme", "orders", Err(Denied::Unknown)),
        (with("x-api-key", ""), "acme", "orders", Err(Denied::Unknown)),
        (HeaderMap::new(), "acme", "orders", Err(Denied::Unknown)),
    ];
    for (headers, tenant, table, right) in cases {
        assert_eq!(access.may(&headers, tenant, table), right, "{headers:?} {tenant}/{table}");
    }
}

#[test]
fn a_change_is_taken_and_a_bad_file_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let access = Access::open(&write(&folder, FILE)).expect("it is sound");
    let shop = with("x-api-key", "k-shop");
    let may = |access: &Access| access.may(&shop, "acme", "orders");
    write(&folder, "[{\"name\": \"shop\", \"key\": \"k-sh");
    access.refresh();
    assert_eq!(may(&access), Ok(()), "half a file");
    std::fs::remove_file(folder.path().join("keys.json")).expect("it was there");
    access.refresh();
    assert_eq!(may(&access), Ok(()), "no file");
    write(&folder, "[]");
    access.refresh();
    assert_eq!(may(&access), Err(Denied::Unknown), "the key was taken away");
    write(&folder, FILE);
    access.refresh();
    assert_eq!(may(&access), Ok(()), "and given back");
}

#[test]
fn bad_files_are_told_without_their_keys() {
    let entry = |rest: &str| format!("[{{\"name\": \"n\", \"tenants\": [], \"tables\": [], {rest}}}]");
    let twice = r#"{"name": "n", "key": "secret", "tenants": [], "tables": []}"#;
    let cases = [
        (entry("\"key\": \" \""), "the key of `n` is blank"),
        (entry("\"key\": \"secret\", \"sha256\": \"00\""), "`n` has either a key or its sha256"),
        (entry("\"sha256\": \"secret\""), "the sha256 of `n` is not 64 hexadecimal digits"),
        (entry("\"key\": \"secret\", \"other\": 1"), "at line 1, column 68 it is no list of keys"),
        (format!("[{twice},{twice}]"), "the key of `n` is another's too"),
        ("{}".to_owned(), "at line 1, column 0 it is no list of keys"),
    ];
    for (text, right) in cases {
        assert_eq!(keys(text.as_bytes()).map(|keys| keys.len()), Err(right.to_owned()), "{text}");
    }
}
