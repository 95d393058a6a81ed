//! Whose records they are: a tenant's table, and the scope within which an event counts once.
//!
//! The tenant is the caller's by right and never comes from a record. The scope is joined of the configured one, tenant
//! and table so that no two of them meet, whatever they are called.

use std::sync::Arc;

use super::tables::Undeduped;
use crate::protocol::event::{EventId, SCOPE_BYTES_MAX, Scope};

/// Longest name of a tenant or a table, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadTarget {
    #[error(
        "a tenant or table is named by 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`, a letter or digit first"
    )]
    Name,
    #[error("the scope leaves no room for tenant and table within {SCOPE_BYTES_MAX} bytes")]
    LongScope,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub tenant: Box<str>,
    pub table: Box<str>,
    pub scope: Scope,
    /// The name that claims keep of where their events came from: `tenant/table`.
    pub origin: Arc<str>,
    /// Off: its records are published unclaimed.
    pub dedupes: bool,
}

impl Target {
    pub fn new(scope: &Scope, tenant: &str, table: &str, undeduped: &Undeduped) -> Result<Target, BadTarget> {
        if !is_name(tenant) || !is_name(table) {
            return Err(BadTarget::Name);
        }
        let joined = EventId::join(&[scope.as_str().as_bytes(), tenant.as_bytes(), table.as_bytes()]);
        let joined = String::from_utf8(joined).map_err(|_| BadTarget::LongScope)?;
        Ok(Target {
            tenant: tenant.into(),
            table: table.into(),
            scope: Scope::new(&joined).map_err(|_| BadTarget::LongScope)?,
            origin: format!("{tenant}/{table}").into(),
            dedupes: undeduped.get(tenant, table).is_none(),
        })
    }

    /// The tenant and table whose scope this is, within `base`.
    pub fn of_scope(base: &Scope, scope: &Scope) -> Option<(Box<str>, Box<str>)> {
        let (rest, table) = scope.as_str().rsplit_once('+')?;
        let (_, tenant) = rest.rsplit_once('+')?;
        let target = Target::new(base, tenant, table, &Undeduped::default()).ok()?;
        (target.scope == *scope).then_some((target.tenant, target.table))
    }
}

/// Checks that every tenant's table has room in this scope.
pub fn check_scope(scope: &Scope) -> Result<(), BadTarget> {
    let longest = "x".repeat(NAME_BYTES_MAX);
    Target::new(scope, &longest, &longest, &Undeduped::default()).map(drop)
}

pub(super) fn is_name(text: &str) -> bool {
    let sound = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(sound)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn scope(text: &str) -> Scope {
        Scope::new(text).expect("a scope")
    }

    #[test]
    fn no_two_tables_share_a_scope() {
        let cases = [
            ("s", "a", "b-c"),
            ("s", "a-b", "c"),
            ("s+a", "b", "c"),
            ("s", "a.b", "c"),
            ("s\\", "a", "b"),
            ("s", "A", "b-c"),
        ];
        let of = |(base, tenant, table): &(&str, &str, &str)| {
            Target::new(&scope(base), tenant, table, &Undeduped::default()).expect("a target").scope
        };
        let scopes: BTreeSet<Scope> = cases.iter().map(of).collect();
        assert_eq!(scopes.len(), cases.len(), "{scopes:?}");
        assert_eq!(of(&("s", "a", "b")).as_str(), "s+a+b");
    }

    #[test]
    fn names_are_plain() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", ".", "..", "-a", "a b", "a/b", "a+b", "ä", "*", "a\n", &long] {
            let of = |tenant, table| Target::new(&scope("s"), tenant, table, &Undeduped::default());
            assert_eq!(of(name, "t"), Err(BadTarget::Name), "{name:?}");
            assert_eq!(of("t", name), Err(BadTarget::Name), "{name:?}");
        }
        let (fits, long) = (255 - 2 - 2 * NAME_BYTES_MAX, 255 - 1 - 2 * NAME_BYTES_MAX);
        assert_eq!(check_scope(&scope(&"s".repeat(fits))), Ok(()));
        assert_eq!(check_scope(&scope(&"s".repeat(long))), Err(BadTarget::LongScope));
    }

    #[test]
    fn a_scope_is_of_one_table() {
        for base in ["s", "a+b", "back\\slash", "s+x"] {
            let base = scope(base);
            let target = Target::new(&base, "acme", "a.b-c", &Undeduped::default()).expect("a target");
            let found = Target::of_scope(&base, &target.scope);
            assert_eq!(found, Some(("acme".into(), "a.b-c".into())), "{base:?}");
        }
        for other in ["s", "s+acme", "t+acme+orders", "s+x+acme+orders", "s+acme+", "s+a c+orders"] {
            assert_eq!(Target::of_scope(&scope("s"), &scope(other)), None, "{other}");
        }
    }
}
