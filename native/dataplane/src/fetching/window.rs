//! What was read lately from afar, so that threads that read around the same place ask for it once.
//!
//! A patch's frames do not end where its reader's pieces of work do, so neighbouring pieces, which run at the same time, want the same bytes.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use diffcache_base::locks::Unpoisoned;

/// Bytes on their way, or here, or given up.
enum State {
    Coming,
    Here(Vec<u8>),
    Failed,
}

struct Piece {
    start: u64,
    end: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Piece {
    fn settle(&self, state: State) {
        *self.state.lock().unpoisoned() = state;
        self.changed.notify_all();
    }

    /// Waits for the bytes and copies those from `at` on; false if they did not come.
    fn copy(&self, at: u64, target: &mut [u8]) -> bool {
        let mut state = self.state.lock().unpoisoned();
        loop {
            match &*state {
                State::Coming => {}
                State::Here(bytes) => {
                    let from = (at - self.start) as usize;
                    target.copy_from_slice(&bytes[from..from + target.len()]);
                    return true;
                }
                State::Failed => return false,
            }
            let waited = self.changed.wait(state);
            state = waited.unpoisoned();
        }
    }

    fn is_coming(&self) -> bool {
        matches!(*self.state.lock().unpoisoned(), State::Coming)
    }
}

/// A part of what one read needs.
struct Share {
    start: u64,
    end: u64,
    piece: Arc<Piece>,
    /// This read brings the piece; others wait for it.
    ours: bool,
}

/// The pieces that were read last, up to a number of bytes.
pub struct Window {
    most: u64,
    pieces: Mutex<VecDeque<Arc<Piece>>>,
}

impl Window {
    /// A window of at most about `most` bytes.
    pub fn new(most: u64) -> Window {
        Window {
            most,
            pieces: Mutex::default(),
        }
    }

    /// Fills `buf` with the bytes from `offset` on; asks `fetch` (buffer, offset) for those that are neither here nor coming.
    ///
    /// # Errors
    /// What `fetch` says.
    pub fn read<E>(
        &self,
        buf: &mut [u8],
        offset: u64,
        fetch: impl Fn(&mut [u8], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let shares = self.divide(offset, offset + buf.len() as u64);
        // Ours first: others may wait for them, and no thread waits before it has fetched its own.
        let mut outcome = Ok(());
        for share in shares.iter().filter(|share| share.ours) {
            let mut bytes = vec![0; (share.end - share.start) as usize];
            if outcome.is_ok() {
                outcome = fetch(&mut bytes, share.start);
            }
            share.piece.settle(match outcome {
                Ok(()) => State::Here(bytes),
                Err(_) => State::Failed,
            });
        }
        outcome?;
        for share in &shares {
            let range = (share.start - offset) as usize..(share.end - offset) as usize;
            let target = &mut buf[range];
            if !share.piece.copy(share.start, target) {
                fetch(target, share.start)?;
            }
        }
        self.shrink();
        Ok(())
    }

    fn divide(&self, start: u64, end: u64) -> Vec<Share> {
        let mut pieces = self.pieces.lock().unpoisoned();
        let mut shares = Vec::new();
        let mut at = start;
        while at < end {
            let there = pieces
                .iter()
                .find(|piece| piece.start <= at && at < piece.end);
            let (piece, ours) = match there {
                Some(piece) => (piece.clone(), false),
                None => {
                    let later = pieces.iter().map(|piece| piece.start);
                    let until = later.filter(|next| *next > at).min().unwrap_or(end);
                    let piece = Arc::new(Piece {
                        start: at,
                        end: until.min(end),
                        state: Mutex::new(State::Coming),
                        changed: Condvar::new(),
                    });
                    pieces.push_back(piece.clone());
                    (piece, true)
                }
            };
            let until = piece.end.min(end);
            shares.push(Share {
                start: at,
                end: until,
                piece,
                ours,
            });
            at = until;
        }
        shares
    }

    /// Forgets what failed, and the oldest pieces beyond the limit.
    fn shrink(&self) {
        let mut pieces = self.pieces.lock().unpoisoned();
        pieces.retain(|piece| !matches!(*piece.state.lock().unpoisoned(), State::Failed));
        let mut held: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        while held > self.most && pieces.front().is_some_and(|piece| !piece.is_coming()) {
            if let Some(piece) = pieces.pop_front() {
                held -= piece.end - piece.start;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Afar {
        asked: AtomicU64,
    }

    impl Afar {
        fn fetch(&self, buf: &mut [u8], offset: u64) -> Result<(), &'static str> {
            self.asked.fetch_add(buf.len() as u64, Ordering::SeqCst);
            for (byte, at) in buf.iter_mut().zip(offset..) {
                *byte = (at * 7) as u8;
            }
            Ok(())
        }
    }

    fn check(window: &Window, afar: &Afar, start: u64, end: u64) {
        let mut buf = vec![0; (end - start) as usize];
        window
            .read(&mut buf, start, |buf, at| afar.fetch(buf, at))
            .unwrap();
        assert!(buf
            .iter()
            .zip(start..)
            .all(|(byte, at)| *byte == (at * 7) as u8));
    }

    #[test]
    fn overlapping_reads_cost_their_union() {
        let window = Window::new(1000);
        let afar = Afar {
            asked: AtomicU64::new(0),
        };
        for (start, end) in [(10, 20), (30, 40), (0, 50), (5, 45), (50, 50)] {
            check(&window, &afar, start, end);
        }
        assert_eq!(afar.asked.load(Ordering::SeqCst), 50);
        check(&window, &afar, 100, 1100);
        check(&window, &afar, 0, 10);
        assert_eq!(afar.asked.load(Ordering::SeqCst), 1060);
    }

    #[test]
    fn threads_that_want_the_same_ask_once() {
        let window = Window::new(1 << 20);
        let afar = Afar {
            asked: AtomicU64::new(0),
        };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (window, afar) = (&window, &afar);
                scope.spawn(move || {
                    for at in 0..500 {
                        check(window, afar, at * 100 + thread, at * 100 + 150);
                    }
                });
            }
        });
        assert_eq!(afar.asked.load(Ordering::SeqCst), 499 * 100 + 150);
    }

    #[test]
    fn what_failed_for_one_is_tried_again_for_the_next() {
        let window = Window::new(1000);
        let failed = window.read(&mut [0; 10], 0, |_, _| Err("gone"));
        assert_eq!(failed, Err("gone"));
        let afar = Afar {
            asked: AtomicU64::new(0),
        };
        check(&window, &afar, 0, 20);
        check(&window, &afar, 0, 20);
        assert_eq!(afar.asked.load(Ordering::SeqCst), 20 + 10);
    }
}
