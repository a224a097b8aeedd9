//! Tests of the service beside an agent.

use super::*;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};

/// No test waits for it.
const LONG: Duration = Duration::from_secs(3600);

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
    let list = supervisor.list(LONG);
    assert_eq!(list.as_array().unwrap().len(), 2);
    let command = |text: Value| supervisor.answer(text.to_string().as_bytes());
    let shown = command(json!({"command": "show", "image": held}));
    assert_eq!(shown["image"]["content_id"], json!(held));
    let changed = command(json!({"command": "change", "image": other, "changed": {"wait": 7.0}}));
    assert_eq!(changed["image"]["content_id"], json!(other));
}

/// Regression: keepers were asked one after the other, each for up to 5 s.
#[test]
fn keepers_that_hang_keep_no_other_one_from_being_listed() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let images = folder.path().join("images");
    let listen = |digit| UnixListener::bind(add_folder(folder.path(), digit).join("socket"));
    // They accept nothing; connections wait for that.
    let hung = ["a", "b", "c"].map(listen);
    let listener = listen("d").unwrap();
    supervisor.find_images(&images).unwrap();
    let listed = std::thread::scope(|scope| {
        let listed = scope.spawn(|| supervisor.list(LONG));
        // It has its question although no other one has answered.
        let (mut stream, _) = listener.accept().unwrap();
        // A connection that is closed before its question was sent is an error.
        let mut question = String::new();
        BufReader::new(&stream).read_line(&mut question).unwrap();
        assert!(question.contains("status"), "{question}");
        stream.write_all(b"{\"chunks\": 7}\n").unwrap();
        drop((stream, hung));
        listed.join().unwrap()
    });
    let listed = listed.as_array().unwrap();
    assert_eq!(4, listed.len());
    assert_eq!(json!(7), listed[3]["chunks"]);
    assert!(listed[..3].iter().all(|image| image["error"].is_string()));
}

/// Regression: a client waited without a limit once a keeper that hangs had not answered many others.
#[test]
fn a_keeper_that_leaves_connections_alone_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    net::listen(&listener, 1).unwrap();
    let mut waiting = Vec::new();
    let refused = loop {
        match Question::begin(folder.path()) {
            Ok(question) => waiting.push(question),
            Err(error) => break error,
        }
    };
    assert_eq!(io::ErrorKind::WouldBlock, refused.kind());
    assert!(status::is_answered(folder.path()));
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
fn commands_with_unknown_fields_or_of_unknown_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let supervisor = supervisor(folder.path());
    let id = "a".repeat(64);
    let change = |changed| json!({"command": "change", "image": id, "changed": changed});
    for (command, kind) in [
        (change(json!({"hydrate": "idle"})), "NotFound"),
        (change(json!({"hydrat": "idle"})), "InvalidInput"),
        (
            json!({"command": "add", "image": id, "wanted": {}}),
            "InvalidInput",
        ),
        (json!({"command": "list", "more": 1}), "InvalidInput"),
        (json!({"command": "format"}), "InvalidInput"),
        (json!({"command": "remove", "image": id}), "NotFound"),
    ] {
        let refused = supervisor.answer(command.to_string().as_bytes());
        assert_eq!(json!(kind), refused["error"]["type"], "{command}");
    }
}

#[test]
fn a_change_may_take_the_limit_of_a_rate_away() {
    let change = |rest: &str| {
        let text = format!(r#"{{"command": "change", "image": "i", "changed": {{{rest}}}}}"#);
        match serde_json::from_str(&text).unwrap() {
            Command::Change { changed, .. } => changed.rate,
            _ => None,
        }
    };
    assert_eq!(None, change(""));
    assert_eq!(Some(None), change(r#""rate": null"#));
    assert_eq!(Some(Some(7)), change(r#""rate": 7"#));
}
