//! Tests of the service beside an agent.

use super::*;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;

fn supervisor(folder: &Path) -> Supervisor {
    let value = json!({
        "socket": folder.join("s"), "state": folder, "mount": folder.join("m"),
    });
    let config = Config::parse(&value.to_string()).unwrap();
    fs::create_dir(folder.join("images")).unwrap();
    Supervisor::new(config, Path::new("/bin/true"))
}

/// A folder of an image, with a configuration that no keeper can use.
fn add_folder(folder: &Path, digit: &str) -> PathBuf {
    let folder = folder.join("images").join(digit.repeat(64));
    fs::create_dir(&folder).unwrap();
    let config = json!({
        "sources": ["/a"], "manifest": "/m", "mount": "/t", "state": folder, "wait": 0.0,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder
}

fn ids(supervisor: &Supervisor) -> Vec<String> {
    let served = supervisor.served();
    served.into_iter().map(|(id, _)| id).collect()
}

/// Regression: a stray file kept the service from starting, and lost+found was removed.
#[test]
fn what_is_no_image_is_left_alone_and_others_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let images = folder.path().join("images");
    add_folder(folder.path(), "a");
    fs::write(images.join("stray"), "").unwrap();
    fs::create_dir(images.join("lost+found")).unwrap();
    let unfinished = images.join("b".repeat(64));
    fs::create_dir(&unfinished).unwrap();
    supervisor.find_images(&images).unwrap();
    assert_eq!(ids(&supervisor), ["a".repeat(64)]);
    assert!(images.join("stray").exists() && images.join("lost+found").exists());
    assert!(!unfinished.exists());
}

/// Regression: a configuration that could not be looked for was none, and the folder of an image that is served was removed.
#[test]
fn an_image_that_cannot_be_looked_at_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let images = folder.path().join("images");
    let served = add_folder(folder.path(), "a");
    let config = served.join("config.json");
    fs::remove_file(&config).unwrap();
    // ELOOP, as EIO or ESTALE of a disk or a server that is away.
    std::os::unix::fs::symlink("config.json", &config).unwrap();
    supervisor.find_images(&images).unwrap();
    assert!(served.exists());
    assert_eq!(ids(&supervisor), ["a".repeat(64)]);
}

#[test]
fn a_folder_whose_keeper_runs_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let images = folder.path().join("images");
    let served = add_folder(folder.path(), "a");
    fs::remove_file(served.join("config.json")).unwrap();
    let lock = File::create(served.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    supervisor.find_images(&images).unwrap();
    assert!(served.exists());
}

/// Regression: while one image was started or ended, for up to 30 s, no keeper of another was started again, and no request was answered.
#[test]
fn others_go_on_while_something_is_done_with_one_image() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let images = folder.path().join("images");
    add_folder(folder.path(), "a");
    add_folder(folder.path(), "b");
    supervisor.find_images(&images).unwrap();
    let (held, other) = ("a".repeat(64), "b".repeat(64));
    let image = supervisor.find(&held).unwrap();
    let turn = image.turn().unwrap();
    // As when its keeper does not end.
    supervisor.look_after();
    assert!(supervisor
        .find(&other)
        .unwrap()
        .turn()
        .unwrap()
        .is_started());
    assert!(!turn.is_started());
    let list = supervisor.list();
    assert_eq!(list["images"].as_array().unwrap().len(), 2);
    assert_eq!(supervisor.show(&held).unwrap()["content_id"], json!(held));
    let changed = supervisor.change(&other, b"{\"wait\": 7.0}");
    assert_eq!(changed.unwrap()["content_id"], json!(other));
}

#[test]
fn the_lock_of_the_service_is_its_own_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let _lock = lock_state(folder.path()).unwrap();
    let mode = fs::metadata(folder.path().join("lock"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert!(lock_state(folder.path()).is_err());
}

#[test]
fn tuning_that_cannot_be_used_is_refused_at_the_start() {
    let parse = |tuning: Value| {
        let value = json!({"socket": "/s", "state": "/t", "mount": "/m", "tuning": tuning});
        Config::parse(&value.to_string())
    };
    assert_eq!(8, parse(json!({"workers": 8})).unwrap().tuning.workers);
    for name in ["in_flight", "workers", "threshold", "restart_backoff"] {
        let refused = parse(json!({name: 0})).unwrap_err().to_string();
        assert!(refused.contains(name), "{refused}");
    }
    assert!(parse(json!({"fan_out": 65})).is_err());
}

#[test]
fn content_ids_are_hexadecimal() {
    assert!(is_content_id(&"0a".repeat(32)));
    for bad in ["", "0a", "../0a", &"0A".repeat(32), &"0g".repeat(32)] {
        assert!(!is_content_id(bad), "{bad}");
    }
}

#[test]
fn requests_with_unknown_fields_are_refused() {
    assert!(parse::<Change>(b"{\"hydrate\": \"idle\"}").is_ok());
    assert!(parse::<Change>(b"{\"hydrat\": \"idle\"}").is_err());
    assert!(parse::<Wanted>(b"{}").is_err());
}
