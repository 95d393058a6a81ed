-- The claims, the streams whose lanes they were made on, and the identity of this store.
--
-- A table `processed_kafka_events` that an earlier guard made is adopted: its rows have no lane and are settled for
-- ever. Assumed of it, and checked below: it is partitioned by range of week_start alone, week_start is a date, the
-- primary key is (consumer_scope_id, event_id, week_start), both of them text, and it has no default partition. Not
-- checked, but needed: whatever other columns it has are nullable or have a default. Its partitions may span more than
-- one week.
--
-- Eight-byte columns first, then four-byte ones, then text: no row has padding in it. Claims of windows have no null,
-- and so no null bitmap. With an id of 36 bytes a claim takes about 120 bytes and its index entry about 90.
CREATE TABLE IF NOT EXISTS processed_kafka_events (
    lane              bigint,
    position          bigint,
    "offset"          bigint,
    first_seen_at     timestamptz NOT NULL,
    "partition"       integer,
    week_start        date NOT NULL,
    consumer_scope_id text COLLATE "C" NOT NULL,
    event_id          text COLLATE "C" NOT NULL,
    topic             text,
    PRIMARY KEY (consumer_scope_id, event_id, week_start)
) PARTITION BY RANGE (week_start);

DO $adopt$
DECLARE
    events regclass := 'processed_kafka_events'::regclass;
    key_columns text;
    key_types text;
BEGIN
    SELECT string_agg(a.attname, ',' ORDER BY k.n), string_agg(a.atttypid::regtype::text, ',' ORDER BY k.n)
    INTO key_columns, key_types
    FROM pg_index AS i
    CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k(attnum, n)
    JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = events AND i.indisprimary;
    IF key_columns IS DISTINCT FROM 'consumer_scope_id,event_id,week_start' OR key_types !~ '^(text|character varying),(text|character varying),date$' THEN
        RAISE EXCEPTION 'processed_kafka_events cannot be adopted: its primary key is (%) of types (%)', key_columns, key_types;
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_partitioned_table AS p
        JOIN pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
        WHERE p.partrelid = events AND p.partstrat = 'r' AND p.partnatts = 1 AND a.attname = 'week_start'
    ) THEN
        RAISE EXCEPTION 'processed_kafka_events cannot be adopted: it is not partitioned by range of week_start';
    END IF;
    IF EXISTS (SELECT FROM pg_partitioned_table AS p WHERE p.partrelid = events AND p.partdefid <> 0) THEN
        RAISE EXCEPTION 'processed_kafka_events cannot be adopted: detach its default partition first';
    END IF;
END
$adopt$;

ALTER TABLE processed_kafka_events
    ADD COLUMN IF NOT EXISTS lane bigint,
    ADD COLUMN IF NOT EXISTS position bigint,
    ADD COLUMN IF NOT EXISTS "offset" bigint,
    ADD COLUMN IF NOT EXISTS first_seen_at timestamptz,
    ADD COLUMN IF NOT EXISTS "partition" integer,
    ADD COLUMN IF NOT EXISTS topic text,
    ALTER COLUMN "offset" DROP NOT NULL,
    ALTER COLUMN "partition" DROP NOT NULL;

-- The week of events without a time. Retention leaves it alone.
CREATE TABLE IF NOT EXISTS processed_kafka_events_undated
    PARTITION OF processed_kafka_events FOR VALUES FROM ('0001-01-01') TO ('0001-01-08');

-- One row a stream that was ever taken. `open_lane` and what follows are null while no lane is open.
CREATE TABLE semel_streams (
    stream    text COLLATE "C" PRIMARY KEY,
    owner     bigint NOT NULL CHECK (owner > 0),
    open_lane bigint UNIQUE CHECK (open_lane > 0),
    drained   bigint,
    scope     text,
    recipe    text
);

-- One row a lane that was ever opened. It outlives the lane's claims.
CREATE TABLE semel_lanes (
    lane      bigint PRIMARY KEY CHECK (lane > 0),
    stream    text COLLATE "C" NOT NULL,
    scope     text NOT NULL,
    recipe    text NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz,
    cut       bigint
);

CREATE TABLE semel_store (
    one     boolean PRIMARY KEY DEFAULT true CHECK (one),
    id      text NOT NULL,
    made_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO semel_store (id) VALUES (replace(gen_random_uuid()::text, '-', ''));
