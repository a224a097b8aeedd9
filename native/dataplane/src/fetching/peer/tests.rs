//! Tests of the names of hosts and objects.

use super::*;

#[test]
fn peers_are_urls_of_a_host_and_a_port() {
    for good in [
        "http://host:1",
        "http://10.0.0.1:8080/",
        "http://[::1]:9",
        "https://host:1",
        "https://[::1]:9/",
    ] {
        assert_eq!(
            Peer::parse(good).unwrap().to_string(),
            good.trim_end_matches('/')
        );
    }
    for bad in [
        "",
        "host:1",
        "ftp://host:1",
        "https://http://host:1",
        "https://host",
        "http://host",
        "http://host:0",
        "http://host:99999",
        "http://:1",
        "http://a/b:1",
        "http://a b:1",
        "http://a:1/x",
        "http://user@host:1",
        "http://a\r\n:1",
    ] {
        assert!(
            matches!(Peer::parse(bad), Err(TransferError::Invalid(_))),
            "{bad}"
        );
    }
}
