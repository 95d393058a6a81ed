use std::time::Duration;

use axum::http::HeaderValue;
use flate2::write::GzEncoder;

use super::*;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text).expect("memory");
    encoder.finish().expect("memory")
}

fn zstd(text: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(text, 3).expect("memory")
}

/// Everything, or why not; and the largest chunk.
fn read(body: Body, encoding: Encoding, bytes_max: u64) -> Result<(Vec<u8>, usize), BodyError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    runtime.block_on(async {
        let mut chunks = Chunks::new(body, encoding, bytes_max, Instant::now() + Duration::from_millis(200))?;
        let (mut all, mut largest) = (Vec::new(), 0);
        while let Some(chunk) = chunks.next().await? {
            assert!(!chunk.is_empty());
            largest = largest.max(chunk.len());
            all.extend_from_slice(&chunk);
        }
        Ok((all, largest))
    })
}

#[test]
fn what_was_compressed_comes_out() {
    let text: Vec<u8> = (0..50_000_u32).flat_map(|n| format!("{{\"id\":{n}}}\n").into_bytes()).collect();
    let twice = [gzip(&text[..1000]), gzip(&text[1000..])].concat();
    let cases = [
        (Encoding::Identity, text.clone(), "as it is"),
        (Encoding::Gzip, gzip(&text), "gzip"),
        (Encoding::Gzip, twice, "gzip in two members"),
        (Encoding::Zstd, zstd(&text), "zstd"),
        (Encoding::Zstd, [zstd(&text[..10]), zstd(&text[10..])].concat(), "zstd in two frames"),
    ];
    for (encoding, wire, what) in cases {
        let read = read(Body::from(wire), encoding, 1 << 20).map(|(all, _)| all);
        assert!(read == Ok(text.clone()), "{what}");
    }
}

#[test]
fn bounds_hold_before_and_after_decompression() {
    let zeros = vec![b'0'; 64 << 20];
    for (encoding, wire) in [(Encoding::Gzip, gzip(&zeros)), (Encoding::Zstd, zstd(&zeros))] {
        assert!(wire.len() < 100_000, "it is a bomb");
        assert_eq!(read(Body::from(wire.clone()), encoding, 1 << 20), Err(BodyError::Large));
        let (all, largest) = read(Body::from(wire), encoding, 64 << 20).expect("it fits");
        assert!(all.len() == zeros.len() && largest <= 4 << 20, "in chunks of up to {largest} bytes");
    }
    assert_eq!(read(Body::from("12345"), Encoding::Identity, 4), Err(BodyError::Large));
    assert_eq!(read(Body::from("1234"), Encoding::Identity, 4), Ok((b"1234".to_vec(), 4)));
}

#[test]
fn what_is_not_whole_is_an_error() {
    let (gzipped, zstded) = (gzip(b"{\"id\":1}"), zstd(b"{\"id\":1}"));
    let cases = [
        (Encoding::Gzip, gzipped[..gzipped.len() - 9].to_vec(), "gzip that ends early"),
        (Encoding::Gzip, gzipped[..gzipped.len() - 2].to_vec(), "gzip without the end of its checksum"),
        (Encoding::Gzip, b"{\"id\":1}".to_vec(), "what is no gzip"),
        (Encoding::Zstd, zstded[..zstded.len() - 2].to_vec(), "zstd that ends early"),
        (Encoding::Zstd, b"{\"id\":1}".to_vec(), "what is no zstd"),
    ];
    for (encoding, wire, what) in cases {
        assert_eq!(read(Body::from(wire), encoding, 1 << 20), Err(BodyError::Encoding), "{what}");
    }
}

/// A body of which nothing comes any more.
struct Silent;

impl HttpBody for Silent {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[test]
fn a_body_that_does_not_end_in_time() {
    assert_eq!(read(Body::new(Silent), Encoding::Identity, 4), Err(BodyError::Late));
}

#[test]
fn encodings() {
    let of = |values: &[&str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_str(value).expect("a value"));
        }
        Encoding::of(&headers)
    };
    let cases: &[(&[&str], Option<Encoding>)] = &[
        (&[], Some(Encoding::Identity)),
        (&["identity"], Some(Encoding::Identity)),
        (&["GZIP"], Some(Encoding::Gzip)),
        (&["zstd"], Some(Encoding::Zstd)),
        (&["br"], None),
        (&["deflate"], None),
        (&["gzip, gzip"], None),
        (&["gzip", "gzip"], None),
    ];
    for (given, right) in cases {
        assert_eq!(of(given), *right, "{given:?}");
    }
}
