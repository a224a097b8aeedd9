//! A server in memory, and what the client makes of its answers.

use std::os::unix::net::UnixListener;
use std::sync::atomic::AtomicBool;

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
    kinds: Arc<Mutex<Vec<(u16, u16)>>>,
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
            flags: Arc::new(Mutex::new(1 | CAN_FLUSH | CAN_FUA | CAN_ZERO)),
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
    &'a Mutex<Vec<(u16, u16)>>,
    &'a AtomicBool,
);

fn serve(
    mut stream: &UnixStream,
    (data, kinds, broke): ServerState<'_>,
    flags: &Mutex<u16>,
    manner: Manner,
) -> io::Result<()> {
    stream.write_all(&MAGIC.to_be_bytes())?;
    stream.write_all(&OPTION_MAGIC.to_be_bytes())?;
    stream.write_all(&HANDSHAKE_FLAGS.to_be_bytes())?;
    read_u32(stream)?;
    read_u64(stream)?;
    read_u32(stream)?;
    let mut option = vec![0; read_u32(stream)? as usize];
    stream.read_exact(&mut option)?;
    let known = option[4] == b'x';
    let mut info = vec![0, 0];
    info.extend((lock(data).len() as u64).to_be_bytes());
    info.extend(lock(flags).to_be_bytes());
    let replies = if known {
        vec![(REPLY_INFO, info), (REPLY_ACK, Vec::new())]
    } else {
        vec![(REPLY_ERROR | 6, b"no such export".to_vec())]
    };
    for (kind, data) in replies {
        stream.write_all(&OPTION_REPLY_MAGIC.to_be_bytes())?;
        stream.write_all(&OPTION_GO.to_be_bytes())?;
        stream.write_all(&kind.to_be_bytes())?;
        stream.write_all(&(data.len() as u32).to_be_bytes())?;
        stream.write_all(&data)?;
    }
    loop {
        assert_eq!(REQUEST_MAGIC, read_u32(stream)?);
        let (flags, kind) = (read_u16(stream)?, read_u16(stream)?);
        let (mut handle, offset) = (read_u64(stream)?, read_u64(stream)? as usize);
        let length = read_u32(stream)? as usize;
        lock(kinds).push((kind, flags));
        let mut written = vec![0; if kind == WRITE { length } else { 0 }];
        stream.read_exact(&mut written)?;
        if manner == Manner::BreaksOnce && !broke.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let error = if manner == Manner::IsFull { 28_u32 } else { 0 };
        let mut answer = Vec::new();
        match kind {
            READ => answer.extend(&lock(data)[offset..offset + length]),
            WRITE => lock(data)[offset..offset + length].copy_from_slice(&written),
            WRITE_ZEROES => lock(data)[offset..offset + length].fill(0),
            _ => {}
        }
        if manner == Manner::Lies {
            handle += 1000;
        }
        stream.write_all(&REPLY_MAGIC.to_be_bytes())?;
        stream.write_all(&error.to_be_bytes())?;
        stream.write_all(&handle.to_be_bytes())?;
        if error == 0 {
            stream.write_all(&answer)?;
        }
    }
}

#[test]
fn addresses_are_parsed() {
    let unix = Address::unix("/run/a b".into(), "x/y");
    assert_eq!(
        unix,
        Address::parse("nbd+unix:///x%2Fy?socket=/run/a%20b").unwrap()
    );
    let tcp = |host: &str, port| Address {
        server: Server::Tcp(host.into(), port),
        export: "v".into(),
    };
    assert_eq!(tcp("h", 10809), Address::parse("nbd://h/v").unwrap());
    assert_eq!(tcp("::1", 7), Address::parse("nbd://[::1]:7/v").unwrap());
    assert_eq!(tcp("::1", 10809), Address::parse("nbd://[::1]/v").unwrap());
    for wrong in [
        "nbd://h",
        "nbd:///v",
        "nbd://h:x/v",
        "nbd+unix:///v",
        "nbd+unix:///v?socket=relative",
        "nbd+unix:///%4?socket=/s",
        "nbds://h/v",
        "/dev/vda",
    ] {
        assert!(Address::parse(wrong).is_err(), "{wrong}");
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
    assert!(lock(&served.data)[..65536].iter().all(|&byte| byte == 0));
    assert_eq!(2, lock(&served.data)[65536]);
}

#[test]
fn durable_writes_use_the_flag_or_a_flush() {
    let served = Served::new(8192, Manner::Serves);
    served.open().write_durably(&[1; 10], 3).unwrap();
    assert_eq!(vec![(WRITE, FUA)], *lock(&served.kinds));
    *lock(&served.flags) = 1 | CAN_FLUSH;
    lock(&served.kinds).clear();
    let origin = served.open();
    origin.write_durably(&[1; 10], 3).unwrap();
    origin.zero(0, 10).unwrap();
    assert_eq!(
        vec![(WRITE, 0), (FLUSH, 0), (WRITE, 0)],
        *lock(&served.kinds)
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
    assert_eq!(5, lock(&served.data)[9]);
    // The first one was not complete: nothing is lost with it.
    origin.sync().unwrap();
}

#[test]
fn a_flush_that_breaks_tells_that_writes_may_be_lost() {
    let served = Served::new(8192, Manner::BreaksOnce);
    let origin = served.open();
    origin.sync().unwrap();
    origin.sync().unwrap();
    assert_eq!(3, lock(&served.kinds).len());
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
    let other = Address {
        export: "y".into(),
        ..served.address.clone()
    };
    assert!(NbdOrigin::open(other).is_err());
    *lock(&served.flags) = 1 | IS_READ_ONLY;
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
    lock(&served.data).truncate(4096);
    assert_eq!(4096, missing.size_now().unwrap());
    assert_eq!(8192, missing.size().unwrap());
}

#[test]
fn what_is_no_server_of_nbd_is_refused() {
    let (mut theirs, ours) = UnixStream::pair().unwrap();
    theirs.write_all(&[7; 64]).unwrap();
    let error = shake_hands(&Socket::Unix(ours), "x").unwrap_err();
    assert_eq!(io::ErrorKind::InvalidData, error.kind());
}
