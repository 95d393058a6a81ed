//! `semel migrate`: brings the schema of the claim store up to this version.

use std::process::ExitCode;

use clap::{ArgMatches, Command};

use super::flags::Listed;
use super::{Subcommand, flags, operator};
use crate::config::operator::OperatorConfig;
use crate::config::store::STORE;
use crate::config::{CONFIG, store};
use crate::store::open;
use crate::store::postgres::PostgresStore;

pub(super) const SUBCOMMAND: Subcommand = Subcommand { declare, run };

const SETTINGS: Listed = Listed { needed: &[&STORE], read: &[&CONFIG] };

fn declare() -> Command {
    let command = Command::new("migrate").about("Makes or updates the tables of the claim store; safe to repeat");
    operator::with_settings(command, &SETTINGS)
}

fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let postgres = match OperatorConfig::of(flags::given(matches))?.store {
        store::Store::Postgres(postgres) => postgres,
        store::Store::Embedded { folder } => {
            println!("the embedded store in {} makes itself", folder.display());
            return Ok(ExitCode::SUCCESS);
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let applied = runtime.block_on(async {
        let store = PostgresStore::connect(&open::options(&postgres)).await?;
        store.migrate().await
    })?;
    if applied.is_empty() {
        println!("the schema is up to date");
    }
    applied.iter().for_each(|version| println!("applied migration {version}"));
    Ok(ExitCode::SUCCESS)
}
