//! Files that are broken: a clear error that names the file, and a server that goes on.

use std::fs;

use pando_tests::Fixture;
use pando_tests::data::Mixture;
use pando_tests::files;

#[test]
fn broken_files_are_named_and_leave_nothing() {
    let f = Fixture::start();
    f.server.create("b", 8, "l2");
    let rows = Mixture::new(1, 8, 3).rows(1, 500);
    let ids: Vec<u64> = (0..500).collect();
    files::write_npy(&f.path("good.npy"), &rows);
    files::write_fvecs(&f.path("good.fvecs"), &rows);
    files::write_jsonl(&f.path("good.jsonl"), &rows);
    files::write_parquet(&f.path("good.parquet"), &files::batch(&ids, &rows));
    files::write_arrow(&f.path("good.arrow"), &files::batch(&ids, &rows));
    let read = |name: &str| fs::read(f.path(name)).expect("a file");
    let (npy, fvecs, parquet, arrow) =
        (read("good.npy"), read("good.fvecs"), read("good.parquet"), read("good.arrow"));
    let patched = |what: &str, with: &str| {
        let text: Vec<u8> = npy[..128].to_vec();
        let text = String::from_utf8_lossy(&text[10..]).replace(what, with);
        let mut out = npy[..10].to_vec();
        out.extend(&text.as_bytes()[..118]);
        out.extend(&npy[128..]);
        out
    };
    let mut ragged = fvecs.clone();
    ragged[36 * 7] = 9;
    let mut negative = fvecs.clone();
    negative[..4].copy_from_slice(&(-1i32).to_le_bytes());
    let mut huge_header = npy.clone();
    huge_header[8..10].copy_from_slice(&u16::MAX.to_le_bytes());

    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("empty.npy", vec![]),
        ("magic.npy", b"NOTNUMPY and more".to_vec()),
        ("header.npy", npy[..40].to_vec()),
        ("header-length.npy", huge_header[..600].to_vec()),
        ("short.npy", npy[..npy.len() - 5].to_vec()),
        ("half.npy", npy[..npy.len() / 2].to_vec()),
        ("shape.npy", patched("(500, 8)", "(999, 8)")),
        ("giant.npy", patched("(500, 8), }       ", "(9223372036854775807, 8), }")),
        ("one-dimensional.npy", patched("(500, 8)", "(4000,) ")),
        ("integers.npy", patched("<f4", "<i4")),
        ("strings.npy", patched("<f4", "|S4")),
        ("dimension.npy", patched("(500, 8)", "(1000,4)")),
        ("short.fvecs", fvecs[..fvecs.len() - 3].to_vec()),
        ("ragged.fvecs", ragged),
        ("negative.fvecs", negative),
        ("empty.parquet", vec![]),
        ("truncated.parquet", parquet[..parquet.len() / 2].to_vec()),
        ("tail.parquet", parquet[..parquet.len() - 9].to_vec()),
        ("noise.parquet", [b"PAR1".to_vec(), vec![0xff; 500], b"PAR1".to_vec()].concat()),
        ("empty.arrow", vec![]),
        ("truncated.arrow", arrow[..arrow.len() / 2].to_vec()),
        ("not-json.jsonl", b"{\"id\": 1, \"vector\": [1,2,3,4,5,6,7,8]}\n{\"id\": 2, \"vec\n".to_vec()),
        ("no-vector.jsonl", b"{\"id\": 1}\n".to_vec()),
        ("words.jsonl", b"{\"id\": 1, \"vector\": [\"a\",2,3,4,5,6,7,8]}\n".to_vec()),
        ("unknown.csv", b"1,2,3\n".to_vec()),
    ];
    for (name, bytes) in &cases {
        let path = f.path(name);
        fs::write(&path, bytes).expect("a file");
        let error = f.server.fails(&["ingest", "b", path.to_str().expect("UTF-8")]);
        assert!(error.contains(name), "{name} is not named: {error}");
    }
    let error = f.server.fails(&["ingest", "b", f.path("absent.npy").to_str().expect("UTF-8")]);
    assert!(error.contains("absent.npy"), "{error}");

    // NaN in row 321 of a file: its id is named.
    let mut nan = rows.clone();
    nan.flat[321 * 8 + 3] = f32::NAN;
    files::write_npy(&f.path("nan.npy"), &nan);
    let error = f.server.fails(&["ingest", "b", f.path("nan.npy").to_str().expect("UTF-8")]);
    assert!(error.contains("321"), "{error}");

    // Whatever whole batches came before a break are legal; here every file is one batch or broken at the start, but for
    // the lines of not-json.jsonl and rows of the cut files, which may only be rows that were really there.
    assert!(f.server.count("b") <= 500);
    f.server.json(&["ingest", "b", f.path("good.parquet").to_str().expect("UTF-8")]);
    f.server.json(&["ingest", "b", f.path("good.npy").to_str().expect("UTF-8")]);
    assert_eq!(f.server.count("b"), 500);

    // Query files are read by the same code.
    let error = f.server.fails(&[
        "query",
        "b",
        "--vectors",
        f.path("magic.npy").to_str().expect("UTF-8"),
        "--top-k",
        "1",
    ]);
    assert!(error.contains("magic.npy"), "{error}");
    let good = f.path("good.npy");
    for k in ["0", "10001", "2147483648", "-1", "x"] {
        f.server.fails(&["query", "b", "--vectors", good.to_str().expect("UTF-8"), "--top-k", k]);
    }
}
