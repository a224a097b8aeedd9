//! The start of the service: its folders, its lock, its socket, and the images of an earlier process.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::process::Signal;

use crate::config;
use crate::error::DaemonError;
use crate::processes::keeper;
use crate::processes::refusal::Refusal;
use crate::processes::served::{Image, Turn};
use crate::processes::supervisor::{is_content_id, Supervisor};

pub(super) fn create_folder(path: &Path, mode: u32) -> Result<(), DaemonError> {
    let created = DirBuilder::new().recursive(true).mode(mode).create(path);
    created.map_err(DaemonError::at("create", path))
}

pub(super) fn lock_state(state: &Path) -> Result<File, DaemonError> {
    let path = state.join("lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    // A user who can open it can lock it, and keep this service from starting.
    let file = options
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path);
    let file = file.map_err(DaemonError::at("open", &path))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DaemonError::Config(format!(
            "another diffcached uses {}",
            state.display()
        ))),
        Err(error) => Err(DaemonError::at("lock", &path)(error)),
    }
}

impl Supervisor {
    /// Take over what earlier processes served. What is no folder of an image is left alone.
    pub(super) fn find_images(&self, folder: &Path) -> Result<(), DaemonError> {
        for entry in fs::read_dir(folder).map_err(DaemonError::at("read", folder))? {
            let entry = entry.map_err(DaemonError::at("read", folder))?;
            let id = entry.file_name().to_string_lossy().into_owned();
            if is_content_id(&id) {
                self.find_image(id);
            } else {
                log::info!("Ignoring {}, which is no image", entry.path().display());
            }
        }
        Ok(())
    }

    /// Take over an image, or remove what is left of one, if that can be known.
    fn find_image(&self, id: String) {
        let image = self.new_image(&id);
        let folder = image.folder().display();
        match is_unfinished(&image) {
            Ok(false) => {}
            Ok(true) => {
                log::info!("Removing {folder}, which was not finished");
                if let Err(error) = fs::remove_dir_all(image.folder()) {
                    log::warn!("Could not remove {folder}: {error}");
                }
                return;
            }
            Err(error) => log::warn!("Could not look at {folder}, will retry: {error}"),
        }
        image.set_served();
        self.images.lock().insert(id, image);
    }

    /// Have each keeper use the identity that this process was started with; one that hangs keeps no other one from it, and no client.
    pub(super) fn renew_all(self: &Arc<Supervisor>) {
        for (id, image) in self.served() {
            let supervisor = self.clone();
            let renew = move || {
                if let Some(turn) = image.turn() {
                    supervisor.renew(&turn);
                }
            };
            let started = std::thread::Builder::new()
                .name("renew".to_owned())
                .spawn(renew);
            if let Err(error) = started {
                log::warn!("Could not renew the keys of {id}: {error}");
            }
        }
    }

    /// Have a keeper use the identity that this process was started with, and the program that is installed.
    fn renew(&self, turn: &Turn<'_>) {
        let image = turn.image();
        let renewed = image.load().map_err(Refusal::from).and_then(|found| {
            let fresh = config::Config {
                identity: self.config.identity.clone(),
                group: self.config.image_group,
                ..found.clone()
            };
            match fresh == found {
                true => Ok(()),
                false => image.save(&fresh),
            }
        });
        turn.signal(Signal::HUP);
        if let Err(error) = renewed {
            log::warn!(
                "Could not renew the keys of {}: {error}",
                image.folder().display()
            );
        }
    }
}

/// Return whether a folder has no configuration, and no keeper.
fn is_unfinished(image: &Image) -> io::Result<bool> {
    Ok(!image.file().try_exists()? && !keeper::is_locked(image.folder())?)
}
