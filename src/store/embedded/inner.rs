//! What the store knows while it is open. One mutex holds it all: there is one writer.
//!
//! Streams, lanes, scopes and origins are few and kept in memory whole; claims are not. In the small keyspace each
//! record's first byte says what it is.

use std::collections::{BTreeMap, HashMap};

use fjall::{Database, Keyspace, OwnedWriteBatch, PersistMode};

use super::OpenError;
use super::code::Unreadable;
use super::lanes::Stream;
use super::names::{Numbers, Origin};
use super::slot_lanes::SlotLane;
use super::tail::{self, Tail};
use super::{Trouble, folder};
use crate::protocol::event::{Scope, Week};
use crate::protocol::lane::{LaneId, StoreId, StreamId};

pub(super) const STORE_ID: u8 = b'i';
const SCOPE: u8 = b'c';
const ORIGIN: u8 = b'o';
pub(super) const STREAM: u8 = b's';
pub(super) const LANE: u8 = b'l';
pub(super) const SLOT_LANE: u8 = b'p';
pub(super) const NOTE: u8 = b'n';

const SMALL_KEYSPACE: &str = "small";
const TAILS_KEYSPACE: &str = "tails";
const WEEK_PREFIX: &str = "week";

pub(super) struct Inner {
    pub database: Database,
    pub small: Keyspace,
    pub tails_space: Keyspace,
    pub weeks: BTreeMap<Week, Keyspace>,
    pub store_id: StoreId,
    pub scopes: Numbers<Scope>,
    pub origins: Numbers<Origin>,
    pub streams: BTreeMap<StreamId, Stream>,
    /// Every lane that was ever opened, and the stream it was opened on.
    pub lanes: HashMap<LaneId, StreamId>,
    /// Those of them that were opened on slots.
    pub slot_lanes: HashMap<LaneId, SlotLane>,
    /// Of the open lanes, and of slots' closed lanes on which claims were left in doubt.
    pub tails: HashMap<LaneId, Tail>,
}

/// Writes what every store begins with.
pub(super) fn fill(database: &Database) -> Result<(), OpenError> {
    let small = database.keyspace(SMALL_KEYSPACE, folder::small_options)?;
    database.keyspace(TAILS_KEYSPACE, folder::small_options)?;
    database.keyspace(&week_name(Week::UNDATED), folder::week_options)?;
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|error| OpenError::Randomness(error.into()))?;
    let mut batch = synced(database);
    batch.insert(&small, [STORE_ID], hex::encode(id));
    Ok(batch.commit()?)
}

impl Inner {
    pub fn load(database: Database) -> Result<Inner, OpenError> {
        let small = database.keyspace(SMALL_KEYSPACE, folder::small_options)?;
        let tails_space = database.keyspace(TAILS_KEYSPACE, folder::small_options)?;
        let mut inner = Inner {
            weeks: BTreeMap::new(),
            store_id: StoreId("".into()),
            scopes: Numbers::new(Vec::new()),
            origins: Numbers::new(Vec::new()),
            streams: BTreeMap::new(),
            lanes: HashMap::new(),
            slot_lanes: HashMap::new(),
            tails: HashMap::new(),
            small,
            tails_space,
            database,
        };
        inner.load_small()?;
        inner.load_weeks()?;
        for record in inner.tails_space.iter() {
            let (key, value) = record.into_inner()?;
            tail::load(&mut inner.tails, &key, &value)?;
        }
        for lane in inner.streams.values().filter_map(|stream| stream.open) {
            inner.tails.entry(lane).or_default();
        }
        Ok(inner)
    }

    fn load_small(&mut self) -> Result<(), OpenError> {
        let (mut scopes, mut origins) = (Vec::new(), Vec::new());
        for record in self.small.iter() {
            let (key, value) = record.into_inner()?;
            let (&what, name) = key.split_first().ok_or(Unreadable("a key is empty"))?;
            let text = || std::str::from_utf8(&value).map_err(|_| Unreadable("a text is not UTF-8"));
            match what {
                STORE_ID => self.store_id = StoreId(text()?.into()),
                // Numbers are written so that they come in their order.
                SCOPE => scopes.push(Scope::new(text()?).map_err(|_| Unreadable("a scope is not one"))?),
                ORIGIN => origins.push(Origin::read(&value)?),
                STREAM => drop(self.streams.insert(stream_id(name)?, Stream::read(&value)?)),
                SLOT_LANE => _ = self.slot_lanes.insert(lane_id(name)?, SlotLane::read(&value)?),
                LANE => drop(self.lanes.insert(lane_id(name)?, StreamId::from_stored(text()?))),
                _ => {}
            }
        }
        self.scopes = Numbers::new(scopes);
        self.origins = Numbers::new(origins);
        if self.store_id.0.is_empty() { Err(Unreadable("the store's id is missing").into()) } else { Ok(()) }
    }

    fn load_weeks(&mut self) -> Result<(), OpenError> {
        for name in self.database.list_keyspace_names() {
            let Some(day) = name.strip_prefix(WEEK_PREFIX) else { continue };
            let week =
                day.parse().ok().and_then(Week::from_day_number).ok_or(Unreadable("a week's name is not one"))?;
            self.weeks.insert(week, self.database.keyspace(&name, folder::week_options)?);
        }
        self.make_week(Week::UNDATED)?;
        Ok(())
    }

    /// Makes room for a week. Nothing else is written: a week without claims is harmless.
    pub fn make_week(&mut self, week: Week) -> Result<(), Trouble> {
        if !self.weeks.contains_key(&week) {
            let space = self.database.keyspace(&week_name(week), folder::week_options).map_err(Trouble::Write)?;
            self.weeks.insert(week, space);
        }
        Ok(())
    }

    pub fn check_weeks(&self, weeks: impl IntoIterator<Item = Week>) -> Result<(), Trouble> {
        let mut last = Week::UNDATED;
        for week in weeks {
            if week != last && !self.weeks.contains_key(&week) {
                return Err(Trouble::NoWeek(week));
            }
            last = week;
        }
        Ok(())
    }

    pub fn batch(&self) -> OwnedWriteBatch {
        synced(&self.database)
    }

    /// Adds the names whose numbers were drawn since to `batch`; [`Inner::keep_new_names`] when that is committed.
    pub fn put_new_names(&self, batch: &mut OwnedWriteBatch) {
        for (number, scope) in self.scopes.new_ones() {
            self.put(batch, SCOPE, &number.to_be_bytes(), scope.as_str().as_bytes().to_vec());
        }
        for (number, origin) in self.origins.new_ones() {
            self.put(batch, ORIGIN, &number.to_be_bytes(), origin.write());
        }
    }

    pub fn keep_new_names(&mut self) {
        self.scopes.keep_new();
        self.origins.keep_new();
    }

    pub fn put(&self, batch: &mut OwnedWriteBatch, what: u8, name: &[u8], value: Vec<u8>) {
        batch.insert(&self.small, small_key(what, name), value);
    }
}

/// A batch that is on disk when its commit returns: the engine's default would leave it in the system's buffers.
fn synced(database: &Database) -> OwnedWriteBatch {
    database.batch().durability(Some(PersistMode::SyncData))
}

pub(super) fn small_key(what: u8, name: &[u8]) -> Vec<u8> {
    [&[what], name].concat()
}

fn week_name(week: Week) -> String {
    format!("{WEEK_PREFIX}{}", week.day_number())
}

fn stream_id(name: &[u8]) -> Result<StreamId, Unreadable> {
    std::str::from_utf8(name).map(StreamId::from_stored).map_err(|_| Unreadable("a stream's name is not UTF-8"))
}

fn lane_id(name: &[u8]) -> Result<LaneId, Unreadable> {
    name.try_into().map(|bytes| LaneId(i64::from_be_bytes(bytes))).map_err(|_| Unreadable("a lane's key is too short"))
}
