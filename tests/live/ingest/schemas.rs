//! Records that have to fit their table's schema.

use semel::pipeline::ingest::{Options, Schemas};

use super::kit::{FORMS, LIMITS, ORDERS, options, published, record, start_with};
use super::subjects;

const SCHEMA: &str = r#"{
    "type": "object",
    "required": ["id", "amount"],
    "properties": {"amount": {"type": "integer", "minimum": 1}, "of": {"properties": {"name": {"type": "string"}}}}
}"#;

/// One that does not fit is rejected with where and why, the others go on; other tables take anything.
#[test]
fn what_does_not_fit_is_rejected() {
    super::run(async {
        let subject = subjects::embedded().await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("orders.json");
        std::fs::write(&path, SCHEMA).expect("a file");
        let schemas = Schemas::of(&format!("acme/orders={}", path.display())).expect("a schema");
        let instance = start_with(&subject, Options { schemas, ..options(&subject, "a") }, LIMITS).await;
        for (form, prefix) in FORMS.into_iter().zip(["a", "l"]) {
            let records = [
                record(&format!("{prefix}0")),
                format!("{{\"id\":\"{prefix}1\"}}"),
                format!("{{\"id\":\"{prefix}2\",\"amount\":\"secret\"}}"),
                "5".to_owned(),
                format!("{{\"id\":\"{prefix}4\",\"amount\":2,\"of\":{{\"name\":[]}}}}"),
                record(&format!("{prefix}5")),
            ];
            let answer = instance.post(form, &records).await;
            assert_eq!(answer.outcomes(), "prrrrp", "{form:?}");
            let of = |n: usize| {
                let result = &answer.body["results"][n];
                ["reason", "path", "detail"].map(|name| result[name].as_str().unwrap_or("none").to_owned())
            };
            let schema = "it does not fit its table's schema";
            assert_eq!(of(1), [schema, "", "\"amount\" is a required property"]);
            assert_eq!(of(2), [schema, "/amount", "value is not of type \"integer\""]);
            assert_eq!(of(3), ["it is not an object", "none", "none"]);
            assert_eq!(of(4), [schema, "/of/name", "value is not of type \"string\""]);
            assert!(!instance.is_claimed(&format!("{prefix}1")).await, "it may come again, mended");
        }
        assert_eq!(published(&subject).await, ["a0", "a5", "l0", "l5"]);
        let elsewhere = instance.send_as("/v1/ingest/acme/returns", "application/json", "{\"id\":\"a1\"}".to_owned());
        assert_eq!(elsewhere.await.outcomes(), "p");
        // One by one and compressed or not, what is told of them all has a bound.
        let bad: Vec<String> = (0..20_000).map(|n| format!("{{\"id\":{n}}}")).collect();
        let body = super::kit::Form::Lines.body(&bad);
        let answer = instance.send_as(ORDERS, "application/x-ndjson", body).await;
        let results = answer.body["results"].as_array().expect("results");
        let told = results.iter().filter(|result| result.get("path").is_some()).count();
        assert!(results.len() == 20_000 && told > 1_000 && told < 20_000, "{told}");
        assert!(results[..told].iter().all(|result| result.get("detail").is_some()), "the first ones");
    });
}
