//! Tests of an image that the supervisor serves.

use super::*;

#[test]
fn a_deadline_that_is_set_again_is_another_one() {
    let minute = Hydrate::Seconds(60.0);
    let again = set_again(minute, minute);
    assert_ne!(again, minute);
    assert!(matches!(again, Hydrate::Seconds(seconds) if (seconds - 60.0).abs() < 1e-9));
    assert_eq!(set_again(minute, Hydrate::Idle), minute);
    assert_eq!(set_again(Hydrate::Idle, Hydrate::Idle), Hydrate::Idle);
}

#[test]
fn the_pauses_of_a_keeper_are_those_of_its_image() {
    let folder = tempfile::tempdir().unwrap();
    let image = Image::new(
        folder.path().to_owned(),
        Mounts::new(None),
        Path::new("/bin/true"),
    );
    assert_eq!(Duration::from_secs(5), image.longest_pause());
    let config = json!({
        "sources": ["/a"], "manifest": "/m", "mount": "/t", "state": "/s", "wait": 0.0,
        "tuning": {"restart_backoff": 0.5},
    });
    fs::write(image.file(), config.to_string()).unwrap();
    assert_eq!(Duration::from_millis(500), image.longest_pause());
}

#[test]
fn a_rate_is_kept_replaced_or_removed() {
    let rate = |text: &str| serde_json::from_str::<Change>(text).map(|found| found.rate);
    assert_eq!(None, rate("{}").unwrap());
    assert_eq!(Some(Some(5)), rate("{\"rate\": 5}").unwrap());
    assert_eq!(Some(None), rate("{\"rate\": null}").unwrap());
    assert!(rate("{\"rate\": -1}").is_err());
}

/// Regression: a lock that could not be opened was none, and a second keeper was started, or the folder removed.
#[test]
fn a_keeper_that_cannot_be_looked_for_has_not_ended() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    // ENOTDIR, as of a damaged disk.
    let image = Image::new(file, Mounts::new(None), Path::new("/bin/true"));
    assert!(!image.turn().unwrap().has_ended());
    let image = Image::new(
        folder.path().join("absent"),
        Mounts::new(None),
        Path::new("/bin/true"),
    );
    assert!(image.turn().unwrap().has_ended());
}

#[test]
fn an_image_that_is_gone_has_no_turn() {
    let image = Image::new("/absent".into(), Mounts::new(None), Path::new("/bin/true"));
    let mut turn = image.turn().unwrap();
    assert!(image.try_turn().is_none());
    turn.set_gone();
    drop(turn);
    assert!(image.turn().is_none() && image.try_turn().is_none());
}
