//! Ids are bytes of text or numbers, and nothing is done to them.

use pando_proto::v1::{Id, id::Kind};
use pando_tests::Fixture;
use pando_tests::grpc::{Api, number, record, string, text};

const ODD: &[&str] = &[
    "a",
    "nul\0inside",
    "\0",
    "emoji 🌳🌲",
    "a/b/../c",
    "..",
    "/",
    " leading and trailing ",
    "new\nline",
    "Ünïcödé",
    "e\u{301}",
    "é",
    "\u{202e}rtl",
    "%2e%2e",
    "' OR 1=1 --",
    "007",
    "7",
    "\u{feff}bom",
];

#[tokio::test(flavor = "multi_thread")]
async fn odd_ids_come_back_byte_for_byte() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("odd", 3, "l2");
    let longest = "x".repeat(512);
    let widest = "🌳".repeat(128);
    let mut names: Vec<&str> = ODD.to_vec();
    names.extend([longest.as_str(), widest.as_str()]);
    let mut ids: Vec<Id> = names.iter().map(|s| text(s)).collect();
    ids.extend([number(0), number(7), number(u64::MAX)]);
    let records = ids.iter().enumerate().map(|(i, id)| {
        let mut r = record(id.clone(), &[i as f32, 1.0, 2.0]);
        r.attributes.insert("n".into(), string(&i.to_string()));
        r
    });
    api.upsert("odd", records.collect()).await.expect("upsert");

    for place in ["tail", "root"] {
        let got = api.fetch("odd", ids.clone()).await.expect("fetch");
        for (i, record) in got.into_iter().enumerate() {
            let record = record.unwrap_or_else(|| panic!("{place}: {:?} is gone", ids[i]));
            assert_eq!(record.id.as_ref(), Some(&ids[i]), "{place}");
            assert_eq!(record.attributes["n"], string(&i.to_string()), "{place}");
        }
        let scanned: Vec<Id> =
            api.scan("odd").await.expect("scan").into_iter().filter_map(|r| r.id).collect();
        assert_eq!(scanned.len(), ids.len(), "{place}");
        let mut sorted = ids.clone();
        // Numbers first, then text by its bytes.
        sorted.sort_by_key(|id| match &id.kind {
            Some(Kind::Number(n)) => (0, *n, Vec::new()),
            Some(Kind::Text(s)) => (1, 0, s.clone().into_bytes()),
            None => unreachable!("every id has a kind"),
        });
        assert_eq!(scanned, sorted, "{place}: a scan is in id order");
        f.server.compact("odd");
    }
    // The number 7 and the text "7" are two records.
    api.delete("odd", vec![number(7)]).await.expect("delete");
    let left = api.fetch("odd", vec![number(7), text("7"), text("007")]).await.expect("fetch");
    assert!(left[0].is_none() && left[1].is_some() && left[2].is_some());
    // Unicode is not normalised: é in one and in two code points are two ids.
    let two = api.fetch("odd", vec![text("e\u{301}"), text("é")]).await.expect("fetch");
    assert_ne!(two[0], two[1]);
    f.server.compact("odd");
    f.server.verify("odd");
    assert_eq!(f.server.count("odd"), ids.len() as u64 - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_reads_digits_as_numbers() {
    let f = Fixture::start();
    let mut api = Api::connect(&f.server).await;
    f.server.create("digits", 2, "l2");
    let records = vec![record(number(7), &[1.0, 0.0]), record(text("7"), &[2.0, 0.0])];
    api.upsert("digits", records).await.expect("upsert");
    let as_text = f.server.run(&["fetch", "digits", "7", "--string-ids"]);
    let as_number = f.server.run(&["fetch", "digits", "7"]);
    assert_eq!((as_text.code, as_number.code), (0, 0), "{}", as_text.stderr);
    assert_ne!(as_text.stdout, as_number.stdout);
}
