//! What this process has open once, for all of its threads.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::mpsc::{channel, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, Weak};

use diffcache_base::locks::{ShortLock, Unpoisoned};

/// To be the last field of a value that is open once: its drop says that the value is closed.
pub(super) type Ends = Sender<Infallible>;

struct Place<T> {
    value: Weak<T>,
    ended: Option<Receiver<Infallible>>,
}

impl<T> Place<T> {
    fn has_ended(&self) -> bool {
        let ended = self.ended.as_ref();
        ended.is_none_or(|ended| ended.try_recv() == Err(TryRecvError::Disconnected))
    }
}

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self {
            value: Weak::new(),
            ended: None,
        }
    }
}

/// Values that are shared, by their numbers.
pub(super) struct Singles<T>(ShortLock<HashMap<u64, Arc<Mutex<Place<T>>>>>);

impl<T> Default for Singles<T> {
    fn default() -> Self {
        Self(ShortLock::default())
    }
}

impl<T> Singles<T> {
    /// Returns the value of a number, which is opened unless it is open. Only those that need the
    /// same one wait for that; and it waits until the former one is closed.
    pub(super) fn get(
        &self,
        number: u64,
        open: impl FnOnce(Ends) -> io::Result<T>,
    ) -> io::Result<Arc<T>> {
        let place = self.place(number);
        let mut place = place.lock().unpoisoned();
        if let Some(known) = place.value.upgrade() {
            return Ok(known);
        }
        if let Some(ended) = place.ended.take() {
            // An error is what says so.
            let _ = ended.recv();
        }
        let (ends, ended) = channel();
        let opened = Arc::new(open(ends)?);
        *place = Place {
            value: Arc::downgrade(&opened),
            ended: Some(ended),
        };
        Ok(opened)
    }

    fn place(&self, number: u64) -> Arc<Mutex<Place<T>>> {
        let mut places = self.0.lock();
        // One without other users is not locked.
        places.retain(|_, place| {
            Arc::strong_count(place) > 1 || !place.lock().unpoisoned().has_ended()
        });
        places.entry(number).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::LazyLock;

    use super::*;

    /// What can be opened by one at a time, as a device is with `O_EXCL`.
    struct Exclusive {
        open: Arc<AtomicBool>,
        _ends: Ends,
    }

    impl Exclusive {
        fn open(open: &Arc<AtomicBool>, ends: Ends) -> io::Result<Self> {
            std::thread::yield_now();
            match open.swap(true, Ordering::AcqRel) {
                true => Err(io::ErrorKind::ResourceBusy.into()),
                false => Ok(Self {
                    open: open.clone(),
                    _ends: ends,
                }),
            }
        }
    }

    impl Drop for Exclusive {
        fn drop(&mut self) {
            std::thread::yield_now();
            self.open.store(false, Ordering::Release);
        }
    }

    /// Regression: two volumes that were attached at once with one device, or one after the other
    /// had been detached, were refused because the device was in use; and an origin's daemon that
    /// ended removed the socket of the one that followed it.
    #[test]
    fn what_is_open_once_is_never_in_use_by_ourselves() {
        let singles = Singles::default();
        let opens: [Arc<AtomicBool>; 2] = Default::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for n in 0..500 {
                        let open = &opens[n % 2];
                        let value = singles.get(n as u64 % 2, |ends| Exclusive::open(open, ends));
                        assert!(value.unwrap().open.load(Ordering::Acquire));
                    }
                });
            }
        });
        let one = singles.get(7, |ends| Exclusive::open(&opens[0], ends));
        assert_eq!(1, singles.0.lock().len(), "those that ended are forgotten");
        drop(one);
    }

    #[test]
    fn what_could_not_be_opened_is_opened_by_the_next() {
        static SINGLES: LazyLock<Singles<Ends>> = LazyLock::new(Singles::default);
        assert!(SINGLES
            .get(1, |_| Err(io::ErrorKind::NotFound.into()))
            .is_err());
        let first = SINGLES.get(1, Ok).unwrap();
        let second = SINGLES
            .get(1, |_| Err(io::ErrorKind::Other.into()))
            .unwrap();
        assert!(Arc::ptr_eq(&first, &second));
    }
}
