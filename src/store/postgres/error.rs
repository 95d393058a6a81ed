//! What an error of the database means for the call: surely nothing written, or unknown.
//!
//! Every call is one explicit transaction. An error that the *server answered* to one of its statements, COMMIT apart,
//! means that the transaction was rolled back, so that nothing was written. Without such an answer (the connection
//! broke, the answer did not come in time) COMMIT may have been carried out, or may still be.

use tokio_postgres::error::{DbError, SqlState};

use crate::store::{Source, StoreError};

/// The server's own words, with its code: `tokio_postgres::Error` says only "db error" of itself.
#[derive(Debug, thiserror::Error)]
#[error("{message} (SQLSTATE {code})")]
pub struct Answer {
    message: String,
    code: String,
}

impl Answer {
    fn of(error: &DbError) -> Answer {
        let mut message = error.message().to_owned();
        // The detail of a failed row repeats the row: an event id does not belong in a log.
        if let Some(hint) = error.hint() {
            message.push_str(": ");
            message.push_str(hint);
        }
        Answer { message, code: error.code().code().to_owned() }
    }
}

/// The innermost words: of the server where it answered, else of the client.
pub fn source(error: tokio_postgres::Error) -> Source {
    match error.as_db_error() {
        Some(answer) => Answer::of(answer).into(),
        None => error.into(),
    }
}

/// For an error that proves that the transaction was rolled back.
pub fn rolled_back(error: tokio_postgres::Error) -> StoreError {
    match error.as_db_error() {
        Some(answer) if may_pass(answer.code()) => StoreError::Unavailable(source(error)),
        _ => StoreError::Rejected(source(error)),
    }
}

/// Whether the same call may succeed later without anybody mending the call or the schema.
fn may_pass(code: &SqlState) -> bool {
    // Connection, transaction rollback, resources, operator intervention, system error; then a read-only server, a
    // lock that was not to be had, and what the server calls internal (DDL that ran into DDL).
    let class = ["08", "40", "53", "57", "58"].iter().any(|class| code.code().starts_with(class));
    class
        || [SqlState::READ_ONLY_SQL_TRANSACTION, SqlState::LOCK_NOT_AVAILABLE, SqlState::INTERNAL_ERROR].contains(code)
}

/// Whether the connection is to be closed: it leads to a server that is going away or was demoted.
pub fn spoils_connection(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        None => true,
        Some(answer) => {
            let code = answer.code();
            code.code().starts_with("08")
                || code.code().starts_with("57P")
                || *code == SqlState::READ_ONLY_SQL_TRANSACTION
                || *code == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
        }
    }
}

/// The server refuses the user, the password or the database: waiting does not mend it.
pub fn is_refused(error: &tokio_postgres::Error) -> bool {
    error.as_db_error().is_some_and(|answer| {
        let code = answer.code();
        code.code().starts_with("28") || *code == SqlState::INVALID_CATALOG_NAME
    })
}

/// No partition takes the row. A CHECK of the table's own has the same code, and a name.
pub fn is_missing_partition(error: &tokio_postgres::Error) -> bool {
    error
        .as_db_error()
        .is_some_and(|answer| *answer.code() == SqlState::CHECK_VIOLATION && answer.constraint().is_none())
}

/// For an answer that is not in the form that the statement has.
pub fn unexpected(what: &'static str) -> StoreError {
    StoreError::Rejected(what.into())
}
