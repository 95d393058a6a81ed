# Everything is a plain command as well; `just` only saves typing.

# Shows it at work, in under a minute after the build.
demo:
    cargo run --release -- demo

# Builds, starts real Kafka, PostgreSQL, PgBouncer, RabbitMQ and NATS, and runs every test.
test *ARGS:
    tests/run {{ARGS}}

# The long forms of the tests.
test-full:
    tests/run --full

# How fast it is beside its ceilings, on a machine with nothing else to do.
bench *ARGS:
    tests/bench/run {{ARGS}}

# README's table of settings.
settings:
    cargo run --release -- config schema --markdown
