//! A server in memory, and what the client makes of its answers.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::AtomicBool;

use diffcache_base::words::Words;
use diffcache_nbd::protocol::{
    export, option, reply, Command, Request, IHAVEOPT, NBDMAGIC, OPTION_REPLY, REQUEST_BYTES,
};
use tempfile::TempDir;

use super::*;

/// What a server does with a request.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    /// It answers.
    Serves,
    /// It closes the connection instead of the first answer, once.
    BreaksOnce,
    /// It says that there is no space.
    IsFull,
    /// It answers with a handle that no request has.
    Lies,
}

/// A server with one export in memory, which says what it was requested.
struct Served {
    /// Removed at the end of the test.
    _folder: TempDir,
    address: Address,
    data: Arc<Mutex<Vec<u8>>>,
    kinds: Arc<Mutex<Vec<(Command, bool)>>>,
    flags: Arc<Mutex<u16>>,
}

impl Served {
    fn new(size: usize, manner: Manner) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let served = Self {
            _folder: folder,
            address: Address::unix(path, "x"),
            data: Arc::new(Mutex::new(vec![0; size])),
            kinds: Arc::default(),
            flags: Arc::new(Mutex::new(1 | export::FLUSH | export::FUA | export::ZEROES)),
        };
        let (data, kinds) = (served.data.clone(), served.kinds.clone());
        let (flags, broke) = (served.flags.clone(), Arc::new(AtomicBool::new(false)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (data, kinds, flags) = (data.clone(), kinds.clone(), flags.clone());
                let broke = broke.clone();
                std::thread::spawn(move || {
                    let state = (&*data, &*kinds, &*broke);
                    // It ends with the connection.
                    let _ = serve(&stream.unwrap(), state, &flags, manner);
                });
            }
        });
        served
    }

    fn open(&self) -> NbdOrigin<Address> {
        NbdOrigin::open(self.address.clone()).unwrap()
    }
}

type ServerState<'a> = (
    &'a Mutex<Vec<u8>>,
    &'a Mutex<Vec<(Command, bool)>>,
    &'a AtomicBool,
);

fn shake_hands(mut stream: &UnixStream, size: usize, flags: u16) -> io::Result<()> {
    stream.write_all(&NBDMAGIC.to_be_bytes())?;
    stream.write_all(&IHAVEOPT.to_be_bytes())?;
    stream.write_all(&3_u16.to_be_bytes())?;
    let mut asked = [0; 20];
    stream.read_exact(&mut asked)?;
    let mut option = vec![0; Words(&asked).be32(16) as usize];
    stream.read_exact(&mut option)?;
    let mut info = vec![0, 0];
    info.extend((size as u64).to_be_bytes());
    info.extend(flags.to_be_bytes());
    let replies = match option[4] {
        b'x' => vec![(reply::INFO, info), (reply::ACK, Vec::new())],
        _ => vec![(reply::ERR_UNKNOWN, b"no such export".to_vec())],
    };
    for (kind, data) in replies {
        stream.write_all(&OPTION_REPLY.to_be_bytes())?;
        stream.write_all(&option::GO.to_be_bytes())?;
        stream.write_all(&kind.to_be_bytes())?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
    }
    Ok(())
}

fn serve(
    mut stream: &UnixStream,
    (data, kinds, broke): ServerState<'_>,
    flags: &Mutex<u16>,
    manner: Manner,
) -> io::Result<()> {
    let size = data.lock().unwrap().len();
    shake_hands(stream, size, *flags.lock().unwrap())?;
    loop {
        let mut head = [0; REQUEST_BYTES];
        stream.read_exact(&mut head)?;
        let request = Request::decode(&head)?;
        let (command, length) = (request.command, request.length as usize);
        let from = request.offset as usize;
        let range = from..from + length;
        let kind = (command, request.is_durable);
        kinds.lock().unwrap().push(kind);
        let mut written = vec![0; if command == Command::Write { length } else { 0 }];
        stream.read_exact(&mut written)?;
        if manner == Manner::BreaksOnce && !broke.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut answer = Vec::new();
        match command {
            Command::Read => answer.extend(&data.lock().unwrap()[range]),
            Command::Write => data.lock().unwrap()[range].copy_from_slice(&written),
            Command::WriteZeroes => data.lock().unwrap()[range].fill(0),
            _ => {}
        }
        let mut reply = request.reply(if manner == Manner::IsFull { 28 } else { 0 });
        if manner == Manner::Lies {
            reply.cookie += 1000;
        }
        stream.write_all(&reply.encode())?;
        if reply.error == 0 {
            stream.write_all(&answer)?;
        }
    }
}

#[test]
fn requests_of_many_threads_get_their_own_answers() {
    let served = Served::new(1 << 20, Manner::Serves);
    let origin = served.open();
    assert_eq!(1 << 20, origin.size().unwrap());
    std::thread::scope(|scope| {
        for thread in 0..16_u64 {
            let origin = &origin;
            scope.spawn(move || {
                let mine = vec![thread as u8 + 1; 1000];
                let at = thread * 65536;
                origin.write_at(&mine, at).unwrap();
                for _ in 0..50 {
                    let mut found = vec![0; 1000];
                    origin.read_at(&mut found, at).unwrap();
                    assert_eq!(mine, found);
                }
            });
        }
    });
    origin.zero(0, 65536).unwrap();
    assert!(served.data.lock().unwrap()[..65536]
        .iter()
        .all(|&byte| byte == 0));
    assert_eq!(2, served.data.lock().unwrap()[65536]);
}

#[test]
fn durable_writes_use_the_flag_or_a_flush() {
    let served = Served::new(8192, Manner::Serves);
    served.open().write_durably(&[1; 10], 3).unwrap();
    assert_eq!(vec![(Command::Write, true)], *served.kinds.lock().unwrap());
    *served.flags.lock().unwrap() = 1 | export::FLUSH;
    served.kinds.lock().unwrap().clear();
    let origin = served.open();
    origin.write_durably(&[1; 10], 3).unwrap();
    origin.zero(0, 10).unwrap();
    assert_eq!(
        [Command::Write, Command::Flush, Command::Write]
            .map(|kind| (kind, false))
            .to_vec(),
        *served.kinds.lock().unwrap()
    );
}

#[test]
fn errors_are_those_of_the_server() {
    let served = Served::new(8192, Manner::IsFull);
    let error = served.open().write_at(&[1; 10], 0).unwrap_err();
    assert_eq!(Some(28), error.raw_os_error());
}

#[test]
fn a_request_whose_connection_breaks_is_sent_again() {
    let served = Served::new(8192, Manner::BreaksOnce);
    let origin = served.open();
    origin.write_at(&[5; 10], 0).unwrap();
    assert_eq!(5, served.data.lock().unwrap()[9]);
    // The first one was not complete: nothing is lost with it.
    origin.sync().unwrap();
}

#[test]
fn a_flush_that_breaks_tells_that_writes_may_be_lost() {
    let served = Served::new(8192, Manner::BreaksOnce);
    let origin = served.open();
    origin.sync().unwrap();
    origin.sync().unwrap();
    assert_eq!(3, served.kinds.lock().unwrap().len());
}

#[test]
fn an_answer_to_no_request_ends_the_connection() {
    let served = Served::new(8192, Manner::Lies);
    let error = served.open().read_at(&mut [0; 10], 0).unwrap_err();
    assert_eq!(io::ErrorKind::ConnectionReset, error.kind());
}

#[test]
fn an_export_that_is_not_there_or_for_reading_is_refused() {
    let served = Served::new(8192, Manner::Serves);
    let mut other = served.address.clone();
    other.export = "y".into();
    assert!(NbdOrigin::open(other).is_err());
    *served.flags.lock().unwrap() = 1 | export::READ_ONLY;
    assert!(NbdOrigin::open(served.address.clone()).is_err());
}

#[test]
fn another_size_is_refused_until_it_is_looked_for() {
    let served = Served::new(8192, Manner::Serves);
    let missing = NbdOrigin::missing(served.address.clone(), 4096);
    assert_eq!(4096, missing.size().unwrap());
    missing.sync().unwrap();
    let error = missing.read_at(&mut [0; 10], 0).unwrap_err();
    assert!(error.to_string().contains("8192 bytes, and had 4096"));
    assert_eq!(8192, missing.size_now().unwrap());
    assert_eq!(8192, missing.size().unwrap());
    missing.read_at(&mut [0; 10], 8000).unwrap();
    served.data.lock().unwrap().truncate(4096);
    assert_eq!(4096, missing.size_now().unwrap());
    assert_eq!(8192, missing.size().unwrap());
}

#[test]
fn a_connection_that_breaks_just_after_another_size_was_taken_is_made_again() {
    let served = Served::new(8192, Manner::BreaksOnce);
    let origin = NbdOrigin::missing(served.address.clone(), 4096);
    assert!(origin.read_at(&mut [0; 10], 0).is_err());
    assert_eq!(8192, origin.size_now().unwrap());
    origin.read_at(&mut [0; 10], 8000).unwrap();
}
