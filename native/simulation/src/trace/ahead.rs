//! A source that is read by a thread, so that reading and what is done with the bytes overlap.

use std::io::{self, BufRead, ErrorKind, Read};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::thread;

/// Buffers that are filled, full, or in use.
const BUFFERS: usize = 4;
/// Bytes of one: few enough to be in a processor's cache when they are used.
const BUFFER: usize = 256 << 10;

/// Reads some buffers ahead.
///
/// The thread ends at the end of the source, at its first error, or, when this is dropped, after the
/// read that it is in.
pub struct Ahead {
    full: Receiver<io::Result<Vec<u8>>>,
    empty: Sender<Vec<u8>>,
    current: Vec<u8>,
    used: usize,
    is_over: bool,
}

impl Ahead {
    /// Begins to read a source.
    ///
    /// # Errors
    /// There is no thread for it.
    pub fn new(source: impl Read + Send + 'static) -> io::Result<Self> {
        let (to_user, full) = channel();
        let (empty, from_user) = channel();
        for _ in 0..BUFFERS {
            // The other end is in this function.
            let _ = empty.send(Vec::new());
        }
        thread::Builder::new()
            .name("trace".into())
            .spawn(move || read_all(source, &from_user, &to_user))?;
        Ok(Self {
            full,
            empty,
            current: Vec::new(),
            used: 0,
            is_over: false,
        })
    }
}

/// Fills buffers; an empty one is the end.
fn read_all(mut source: impl Read, empty: &Receiver<Vec<u8>>, full: &Sender<io::Result<Vec<u8>>>) {
    for mut buffer in empty {
        buffer.resize(BUFFER, 0);
        let result = read_some(&mut source, &mut buffer);
        let goes_on = matches!(result, Ok(count) if count > 0);
        let filled = result.map(|count| {
            buffer.truncate(count);
            buffer
        });
        if full.send(filled).is_err() || !goes_on {
            return;
        }
    }
}

fn read_some(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl BufRead for Ahead {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.used == self.current.len() && !self.is_over {
            // Fails after the end alone: no more buffers are needed.
            let _ = self.empty.send(std::mem::take(&mut self.current));
            self.used = 0;
            let next = self.full.recv();
            self.current = next.map_err(|_| io::Error::other("the source failed before"))??;
            self.is_over = self.current.is_empty();
        }
        Ok(&self.current[self.used..])
    }

    fn consume(&mut self, amount: usize) {
        self.used = (self.used + amount).min(self.current.len());
    }
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let count = available.len().min(into.len());
        into[..count].copy_from_slice(&available[..count]);
        self.consume(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{sync_channel, SyncSender};

    use super::*;

    /// Returns what it has, one after the other; then 0 bytes.
    struct Pieces(Vec<io::Result<Vec<u8>>>);

    impl Read for Pieces {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return Ok(0);
            }
            let piece = self.0.remove(0)?;
            into[..piece.len()].copy_from_slice(&piece);
            Ok(piece.len())
        }
    }

    #[test]
    fn a_source_is_read_to_its_end_and_not_beyond() {
        let bytes: Vec<u8> = (0..3 * BUFFER * BUFFERS + 77).map(|n| n as u8).collect();
        let mut ahead = Ahead::new(io::Cursor::new(bytes.clone())).unwrap();
        let mut found = Vec::new();
        ahead.read_to_end(&mut found).unwrap();
        assert!(bytes == found);
        assert_eq!(0, ahead.read(&mut [0]).unwrap());
        assert!(ahead.fill_buf().unwrap().is_empty());
    }

    #[test]
    fn an_interrupted_read_is_repeated() {
        let interrupted = || Err(ErrorKind::Interrupted.into());
        let pieces = vec![
            interrupted(),
            Ok(b"a".to_vec()),
            interrupted(),
            interrupted(),
            Ok(b"bc".to_vec()),
        ];
        let mut found = String::new();
        let mut ahead = Ahead::new(Pieces(pieces)).unwrap();
        ahead.read_to_string(&mut found).unwrap();
        assert_eq!("abc", found);
    }

    #[test]
    fn an_error_comes_after_the_bytes_before_it_and_is_no_end() {
        let pieces = vec![Ok(b"abc".to_vec()), Err(ErrorKind::TimedOut.into())];
        let mut ahead = Ahead::new(Pieces(pieces)).unwrap();
        let mut found = [0; 3];
        ahead.read_exact(&mut found).unwrap();
        assert_eq!(b"abc", &found);
        assert_eq!(ErrorKind::TimedOut, ahead.fill_buf().unwrap_err().kind());
        assert_eq!(ErrorKind::Other, ahead.fill_buf().unwrap_err().kind());
    }

    /// Has bytes without end, and notes when it is dropped.
    struct Endless(SyncSender<()>);

    impl Read for Endless {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            Ok(into.len())
        }
    }

    impl Drop for Endless {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[test]
    fn the_thread_ends_when_its_reader_is_dropped_early() {
        for reads in [0, 1, 10] {
            let (ended, end) = sync_channel(1);
            let mut ahead = Ahead::new(Endless(ended)).unwrap();
            for _ in 0..reads {
                let count = ahead.fill_buf().unwrap().len();
                ahead.consume(count);
            }
            drop(ahead);
            // Waits for ever if the thread does.
            end.recv().unwrap();
        }
    }
}
