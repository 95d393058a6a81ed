//! Who may write, and what nobody learns.

use super::kit::{Answer, ORDERS, record, start};
use super::subjects;

const JSON: (&str, &str) = ("content-type", "application/json");

/// Of one shape, whatever is there and whatever is asked for.
#[test]
fn without_a_right_nothing_is_told() {
    super::run(async {
        let instance = start(&subjects::memory().await).await;
        assert_eq!(instance.send_as(ORDERS, JSON.1, record("a")).await.outcomes(), "p");
        let paths =
            [ORDERS, "/v1/ingest/acme/none", "/v1/ingest/nobody/orders", "/v1/ingest/a+b/*", "/v1/ingest/%2e%2e/x"];
        let bodies = [record("a"), record("b"), "no json".to_owned()];
        for path in paths {
            for body in &bodies {
                let unknown = Answer::failure(401, "unauthorized", None);
                let keys = [("x-api-key", "k-nobody"), ("authorization", "Bearer k-nobody"), ("x-other", "")];
                for key in keys {
                    assert_eq!(instance.send(path, &[key, JSON], body.clone()).await, unknown, "{path} {key:?}");
                }
                if path != ORDERS {
                    let forbidden = Answer::failure(403, "forbidden", None);
                    let answer = instance.send(path, &[("x-api-key", "k-shop"), JSON], body.clone()).await;
                    assert_eq!(answer, forbidden, "{path} {body}");
                }
            }
        }
        let own = [("x-api-key", "k-shop"), JSON];
        assert_eq!(instance.send(ORDERS, &own, record("a")).await.outcomes(), "d", "its own table");
        let bad = Answer::failure(400, "bad name of a tenant or table", None);
        assert_eq!(instance.send_as("/v1/ingest/a+b/orders", JSON.1, record("a")).await, bad);
    });
}

/// The tenant is the path's, whatever a record says.
#[test]
fn the_tenant_never_comes_from_the_body() {
    super::run(async {
        let subject = subjects::memory().await;
        let instance = start(&subject).await;
        let claims_another = "{\"id\":\"a\",\"tenant\":\"other\",\"table\":\"x\",\"semel-tenant\":\"other\"}";
        assert_eq!(instance.send_as(ORDERS, JSON.1, claims_another.to_owned()).await.outcomes(), "p");
        let other = instance.send_as("/v1/ingest/other/x", JSON.1, record("a")).await;
        assert_eq!(other.outcomes(), "p", "that of acme is not seen there");
        assert_eq!(instance.send_as(ORDERS, JSON.1, record("a")).await.outcomes(), "d");
    });
}
