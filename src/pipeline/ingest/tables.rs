//! What is set for some tenants' tables: `TENANT/TABLE` or `TENANT/TABLE=VALUE` between commas, where `*` is every tenant
//! or every table. Of several entries that fit, the first counts.

use std::time::Duration;

use super::target::is_name;
use crate::config::units;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tables<T>(Vec<(String, String, T)>);

impl<T> Default for Tables<T> {
    fn default() -> Tables<T> {
        Tables(Vec::new())
    }
}

impl<T> Tables<T> {
    fn read(text: &str, entry: impl Fn(&str) -> Result<(&str, T), String>) -> Result<Tables<T>, String> {
        let one = |text: &str| {
            let text = text.trim();
            let (table, value) = entry(text)?;
            let named = |name: &str| name == "*" || is_name(name);
            match table.split_once('/') {
                Some((tenant, table)) if named(tenant) && named(table) => {
                    Ok((tenant.to_owned(), table.to_owned(), value))
                }
                _ => Err(format!("`{table}` is not TENANT/TABLE, where `*` is any")),
            }
        };
        text.split(',').map(one).collect::<Result<_, _>>().map(Tables)
    }

    /// Entries with a value.
    pub fn parse(text: &str, value: impl Fn(&str) -> Result<T, String>) -> Result<Tables<T>, String> {
        Tables::read(text, |entry| {
            let (table, text) = entry.split_once('=').ok_or_else(|| format!("`{entry}` is not TENANT/TABLE=VALUE"))?;
            Ok((table, value(text)?))
        })
    }

    pub fn get(&self, tenant: &str, table: &str) -> Option<&T> {
        let is = |pattern: &String, name: &str| pattern == "*" || pattern == name;
        let fits = |(of_tenant, of_table, _): &&(String, String, T)| is(of_tenant, tenant) && is(of_table, table);
        self.0.iter().find(fits).map(|(_, _, value)| value)
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, _, value)| value)
    }
}

/// Tables whose records are published without dedupe.
pub type Undeduped = Tables<()>;

impl Undeduped {
    pub fn of(text: &str) -> Result<Undeduped, String> {
        Tables::read(text, |entry| Ok((entry, ())))
    }
}

/// How long the claims of a table are kept. None: for ever.
pub type Retention = Tables<Option<Duration>>;

/// Below it a claim could go while its sender still tries.
const RETENTION_MIN: Duration = Duration::from_secs(1);

impl Retention {
    pub fn of(text: &str) -> Result<Retention, String> {
        Tables::parse(text, |value| match value {
            "forever" => Ok(None),
            _ => match units::duration(value)? {
                time if time < RETENTION_MIN => Err(format!("`{value}` is less than a second")),
                time => Ok(Some(time)),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_without_dedupe() {
        let undeduped = Undeduped::of("acme/logs, */metrics,quiet/*").expect("sound");
        let cases = [
            ("acme", "logs", true),
            ("acme", "orders", false),
            ("other", "logs", false),
            ("other", "metrics", true),
            ("quiet", "anything", true),
        ];
        for (tenant, table, right) in cases {
            assert_eq!(undeduped.get(tenant, table).is_some(), right, "{tenant}/{table}");
        }
        for wrong in ["", "acme", "acme/", "/logs", "a/b/c", "a b/c", "a/b,"] {
            assert!(Undeduped::of(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_first_retention_that_fits() {
        let retention = Retention::of("acme/audit=forever, acme/*=7d,*/logs=12h").expect("sound");
        let hours = |hours: u64| Some(Some(Duration::from_secs(hours * 3_600)));
        let cases = [
            ("acme", "audit", Some(None)),
            ("acme", "logs", hours(168)),
            ("other", "logs", hours(12)),
            ("other", "orders", None),
        ];
        for (tenant, table, right) in cases {
            assert_eq!(retention.get(tenant, table).copied(), right, "{tenant}/{table}");
        }
        for wrong in ["a/b", "a/b=", "a/b=7", "a/b=0s", "a/b=999ms", "a=7d", "a/b=never"] {
            assert!(Retention::of(wrong).is_err(), "{wrong:?}");
        }
    }
}
