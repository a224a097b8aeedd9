//! What a plane can serve: files below its root, images of diffcached, objects in flight, and lent and borrowed files.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use diffcache_base::locks::Unpoisoned;
use diffcache_core::hash_tree::Hash;
use rustix::fs::{Dir, Mode, OFlags};

use crate::flight::Flight;
use crate::ids::{Kind, ObjectKey};
use crate::serving::borrowed::Borrowed;
use crate::serving::object_file::{regular_size, ObjectsError};
use crate::serving::partial::Partial;

/// An object that can be served.
pub enum Found {
    /// A complete file of this many bytes; it stays readable when it is unlinked.
    Whole(Arc<File>, u64),
    /// An object whose bytes become ready one after another.
    Arriving(Arc<Flight>),
    /// A file of another program, to be verified as it is read.
    Borrowed(Arc<Borrowed>),
    /// An image of diffcached, which fetches what is absent.
    Partial(Arc<Partial>),
}

/// Who reads an object.
#[derive(Default)]
struct Readers {
    present: usize,
    /// Until when a reader between two ranges counts as present.
    expected: Option<Instant>,
}

impl Readers {
    fn count(&self) -> usize {
        let expected = self.expected.is_some_and(|until| until > Instant::now());
        self.present.max(usize::from(expected))
    }
}

struct Lent {
    file: Arc<File>,
    size: u64,
    modified: (i64, u64),
    expires: Instant,
}

/// Everything one plane can serve, and who reads it.
pub struct Objects {
    root: OwnedFd,
    flights: Mutex<HashMap<ObjectKey, Arc<Flight>>>,
    lent: Mutex<HashMap<ObjectKey, Lent>>,
    borrowed: Mutex<HashMap<ObjectKey, Arc<Borrowed>>>,
    partial: Mutex<HashMap<ObjectKey, Arc<Partial>>>,
    /// Borrowed objects that had changed when they were read.
    changed: Mutex<Vec<ObjectKey>>,
    readers: Mutex<HashMap<ObjectKey, Readers>>,
}

impl Objects {
    /// Opens a root directory and makes its subdirectories where they are missing.
    pub fn open(root: &Path) -> io::Result<Objects> {
        for kind in Kind::ALL {
            std::fs::create_dir_all(root.join(kind.as_str()))?;
        }
        std::fs::create_dir_all(root.join("staging"))?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Objects {
            root: rustix::fs::open(root, flags, Mode::empty())?,
            flights: Mutex::default(),
            lent: Mutex::default(),
            borrowed: Mutex::default(),
            partial: Mutex::default(),
            changed: Mutex::default(),
            readers: Mutex::default(),
        })
    }

    /// Finds an object: below the root, else at diffcached, else in flight, else lent, else borrowed.
    pub fn find(&self, key: ObjectKey) -> Result<Option<Found>, ObjectsError> {
        if let Some((file, size)) = self.open_held(key)? {
            return Ok(Some(Found::Whole(Arc::new(file), size)));
        }
        if let Some(partial) = self.partial.lock().unpoisoned().get(&key) {
            return Ok(Some(Found::Partial(partial.clone())));
        }
        if let Some(flight) = self.flights.lock().unpoisoned().get(&key) {
            flight.follow();
            return Ok(Some(Found::Arriving(flight.clone())));
        }
        if let Some((file, size)) = self.find_lent(key)? {
            return Ok(Some(Found::Whole(file, size)));
        }
        Ok(self
            .borrowed
            .lock()
            .unpoisoned()
            .get(&key)
            .cloned()
            .map(Found::Borrowed))
    }

    /// Opens `<root>/<kind>/<id>` without following any link on the way.
    pub fn open_held(&self, key: ObjectKey) -> Result<Option<(File, u64)>, ObjectsError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(
            &self.root,
            key.kind.as_str(),
            flags | OFlags::DIRECTORY,
            Mode::empty(),
        );
        // Do not wait for a writer if the path is a FIFO.
        let file = directory.and_then(|directory| {
            rustix::fs::openat(
                directory,
                key.id_hex(),
                flags | OFlags::NONBLOCK,
                Mode::empty(),
            )
        });
        match file {
            Ok(file) => {
                let size = regular_size(&rustix::fs::fstat(&file).map_err(io::Error::from)?)?;
                Ok(Some((File::from(file), size)))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => Err(ObjectsError::NotAFile),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Content IDs of the images below the root, as far as they can be listed.
    pub fn held_images(&self) -> Vec<Hash> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::DIRECTORY;
        let kind = Kind::Images.as_str();
        let opened = rustix::fs::openat(&self.root, kind, flags, Mode::empty());
        let Ok(listed) = opened.and_then(Dir::new) else {
            return Vec::new();
        };
        listed
            .filter_map(Result::ok)
            .filter_map(|entry| ObjectKey::parse(kind, entry.file_name().to_str().ok()?))
            .map(|key| key.id)
            .collect()
    }

    /// The files of other programs that are served now, as images.
    pub fn borrowed_images(&self) -> HashMap<Hash, Arc<Borrowed>> {
        let borrowed = self.borrowed.lock().unpoisoned();
        borrowed
            .iter()
            .map(|(key, file)| (key.id, file.clone()))
            .collect()
    }

    fn find_lent(&self, key: ObjectKey) -> Result<Option<(Arc<File>, u64)>, ObjectsError> {
        let mut lent = self.lent.lock().unpoisoned();
        lent.retain(|_, entry| entry.expires > Instant::now());
        let Some(entry) = lent.get(&key) else {
            return Ok(None);
        };
        let (size, modified) = fingerprint(&*entry.file)?;
        if (size, modified) != (entry.size, entry.modified) {
            lent.remove(&key);
            return Ok(None);
        }
        Ok(Some((entry.file.clone(), size)))
    }

    /// Serves the file at `path` under `key` for `time`, or until it changes.
    pub fn lend(&self, key: ObjectKey, path: &Path, time: Duration) -> Result<(), ObjectsError> {
        let file = File::open(path)?;
        self.lend_file(key, Arc::new(file), time)
    }

    /// Like [`Objects::lend`], for a file that is open.
    pub fn lend_file(
        &self,
        key: ObjectKey,
        file: Arc<File>,
        time: Duration,
    ) -> Result<(), ObjectsError> {
        let (size, modified) = fingerprint(&*file)?;
        let entry = Lent {
            file,
            size,
            modified,
            expires: Instant::now() + time,
        };
        self.lent.lock().unpoisoned().insert(key, entry);
        Ok(())
    }

    /// Stops lending an object.
    pub fn recall(&self, key: ObjectKey) {
        self.lent.lock().unpoisoned().remove(&key);
    }

    /// Serves a file of another program as `key`, until its content is found to have changed.
    pub fn borrow(&self, key: ObjectKey, file: Borrowed) {
        self.borrowed
            .lock()
            .unpoisoned()
            .insert(key, Arc::new(file));
    }

    /// Stops serving a borrowed file, which is closed when its readers are done.
    pub fn give_back(&self, key: ObjectKey) {
        self.borrowed.lock().unpoisoned().remove(&key);
    }

    /// Serves an image of diffcached as `key` until `detach`.
    pub fn attach(&self, key: ObjectKey, partial: Partial) {
        self.partial
            .lock()
            .unpoisoned()
            .insert(key, Arc::new(partial));
    }

    /// The image that diffcached of this host serves as `key`, also while it is found elsewhere.
    pub fn partial(&self, key: ObjectKey) -> Option<Arc<Partial>> {
        self.partial.lock().unpoisoned().get(&key).cloned()
    }

    /// Stops serving an image of diffcached.
    pub fn detach(&self, key: ObjectKey) {
        self.partial.lock().unpoisoned().remove(&key);
    }

    /// Stops serving a borrowed file that has changed, and notes that, unless another one is in its place already.
    pub fn note_changed(&self, key: ObjectKey, file: &Arc<Borrowed>) {
        let mut borrowed = self.borrowed.lock().unpoisoned();
        if borrowed.get(&key).is_some_and(|one| Arc::ptr_eq(one, file)) {
            borrowed.remove(&key);
            self.changed.lock().unpoisoned().push(key);
        }
    }

    /// Returns the borrowed objects that had changed, since the last call.
    pub fn take_changed(&self) -> Vec<ObjectKey> {
        std::mem::take(&mut *self.changed.lock().unpoisoned())
    }

    /// Closes the files of lendings that are over; returns how many remain.
    pub fn expire(&self) -> usize {
        let mut lent = self.lent.lock().unpoisoned();
        lent.retain(|_, entry| entry.expires > Instant::now());
        lent.len()
    }

    /// Registers an object as arriving, until the returned landing is dropped.
    pub fn begin(self: &Arc<Objects>, key: ObjectKey) -> Result<Landing, ObjectsError> {
        let mut flights = self.flights.lock().unpoisoned();
        if flights.contains_key(&key) {
            return Err(ObjectsError::AlreadyInFlight);
        }
        let flight = Arc::new(Flight::default());
        flights.insert(key, flight.clone());
        Ok(Landing {
            objects: self.clone(),
            key,
            flight,
        })
    }

    /// Refuses all readers that wait for an arriving object.
    pub fn fail_flights(&self) {
        for flight in self.flights.lock().unpoisoned().values() {
            flight.fail();
        }
    }

    /// Objects in flight now.
    pub fn flights(&self) -> usize {
        self.flights.lock().unpoisoned().len()
    }

    /// Counts a reader of `key` for as long as the returned value lives, and for the time `hold` after that.
    pub fn read(self: &Arc<Objects>, key: ObjectKey, hold: Duration) -> Reading {
        self.readers
            .lock()
            .unpoisoned()
            .entry(key)
            .or_default()
            .present += 1;
        Reading {
            objects: self.clone(),
            key,
            hold,
        }
    }

    /// Transfers of `key` to peers that are under way; at least one while a reader announced further ranges.
    pub fn readers(&self, key: ObjectKey) -> usize {
        self.readers
            .lock()
            .unpoisoned()
            .get(&key)
            .map_or(0, Readers::count)
    }
}

fn fingerprint(file: impl AsFd) -> Result<(u64, (i64, u64)), ObjectsError> {
    let stat = rustix::fs::fstat(file).map_err(io::Error::from)?;
    Ok((regular_size(&stat)?, (stat.st_mtime, stat.st_mtime_nsec)))
}

/// The registration of an arriving object; dropping it without [`Landing::land`] reports the failure to the readers.
pub struct Landing {
    objects: Arc<Objects>,
    key: ObjectKey,
    flight: Arc<Flight>,
}

impl Landing {
    /// The arriving object.
    pub fn flight(&self) -> &Arc<Flight> {
        &self.flight
    }

    /// The object is complete: readers behind it continue to its end.
    pub fn land(self) {
        self.flight.land();
    }
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.flight.fail();
        self.objects.flights.lock().unpoisoned().remove(&self.key);
    }
}

/// One transfer of an object to a peer.
pub struct Reading {
    objects: Arc<Objects>,
    key: ObjectKey,
    hold: Duration,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut all = self.objects.readers.lock().unpoisoned();
        if let Some(readers) = all.get_mut(&self.key) {
            readers.present -= 1;
            let until = Instant::now() + self.hold;
            readers.expected = readers.expected.max(Some(until));
        }
        all.retain(|_, readers| readers.count() > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Directory;
    use std::os::unix::fs::symlink;

    fn key(digit: &str) -> ObjectKey {
        ObjectKey::parse("patches", &digit.repeat(64)).unwrap()
    }

    #[test]
    fn only_regular_files_below_the_root_are_served() {
        let directory = Directory::new();
        let objects = Objects::open(&directory.path).unwrap();
        let patches = directory.path.join("patches");
        assert!(objects.find(key("a")).unwrap().is_none());
        std::fs::write(patches.join("a".repeat(64)), b"12345").unwrap();
        assert!(matches!(
            objects.find(key("a")),
            Ok(Some(Found::Whole(_, 5)))
        ));
        std::fs::write(directory.path.join("secret"), b"x").unwrap();
        symlink("../secret", patches.join("b".repeat(64))).unwrap();
        assert!(matches!(
            objects.find(key("b")),
            Err(ObjectsError::NotAFile)
        ));
        std::fs::create_dir(patches.join("c".repeat(64))).unwrap();
        assert!(matches!(
            objects.find(key("c")),
            Err(ObjectsError::NotAFile)
        ));
        std::fs::remove_dir_all(&patches).unwrap();
        symlink(".", &patches).unwrap();
        assert!(matches!(
            objects.find(key("a")),
            Err(ObjectsError::NotAFile)
        ));
    }

    #[test]
    fn a_lent_file_is_served_until_it_changes_or_its_time_is_over() {
        let directory = Directory::new();
        let objects = Objects::open(&directory.path).unwrap();
        let path = directory.path.join("output");
        std::fs::write(&path, b"123").unwrap();
        objects
            .lend(key("a"), &path, Duration::from_secs(600))
            .unwrap();
        objects.lend(key("b"), &path, Duration::ZERO).unwrap();
        objects
            .lend(key("c"), &path, Duration::from_secs(600))
            .unwrap();
        assert_eq!(objects.expire(), 2);
        assert!(objects.find(key("b")).unwrap().is_none());
        objects.recall(key("c"));
        assert!(objects.find(key("c")).unwrap().is_none());
        assert!(matches!(
            objects.find(key("a")),
            Ok(Some(Found::Whole(_, 3)))
        ));
        std::fs::write(&path, b"1234").unwrap();
        assert!(objects.find(key("a")).unwrap().is_none());
        assert_eq!(objects.expire(), 0);
    }

    #[test]
    fn an_object_is_in_flight_once() {
        let directory = Directory::new();
        let objects = Arc::new(Objects::open(&directory.path).unwrap());
        let landing = objects.begin(key("a")).unwrap();
        assert!(matches!(
            objects.begin(key("a")),
            Err(ObjectsError::AlreadyInFlight)
        ));
        assert!(matches!(
            objects.find(key("a")),
            Ok(Some(Found::Arriving(_)))
        ));
        drop(landing);
        assert!(objects.find(key("a")).unwrap().is_none());
        objects.begin(key("a")).unwrap().land();
        assert_eq!(objects.flights(), 0);
    }

    #[test]
    fn readers_are_counted_while_they_read() {
        let directory = Directory::new();
        let objects = Arc::new(Objects::open(&directory.path).unwrap());
        let one = objects.read(key("a"), Duration::ZERO);
        let two = objects.read(key("a"), Duration::ZERO);
        assert_eq!(objects.readers(key("a")), 2);
        assert_eq!(objects.readers(key("b")), 0);
        drop(one);
        drop(two);
        assert_eq!(objects.readers(key("a")), 0);
        drop(objects.read(key("a"), Duration::from_secs(600)));
        drop(objects.read(key("a"), Duration::ZERO));
        assert_eq!(objects.readers(key("a")), 1);
    }
}
