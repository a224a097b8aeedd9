//! Reading an image's bytes in frames from a host of the site.

use diffcache_core::compressed::{Decoder, Frame};

use crate::fetching::client::Fault;
use crate::fetching::peer::Remote;
use crate::transport::frames::{ChunkLine, FRAME_LEN, LAST_CHUNK};

/// Reads some bytes of a body; at least one.
pub type Read<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<usize, Fault>;

/// Reads the chunks of bodies, and decompresses them. Memory: at most 2 MiB and a decoder.
pub struct FrameReader<'a> {
    remote: &'a Remote,
    decoder: Decoder,
    bytes: Vec<u8>,
    raw: Vec<u8>,
}

impl<'a> FrameReader<'a> {
    /// A reader of bodies from a peer.
    pub fn new(remote: &'a Remote) -> FrameReader<'a> {
        FrameReader {
            remote,
            decoder: Decoder::new(),
            bytes: Vec::new(),
            raw: Vec::new(),
        }
    }

    /// Reads the frame of the bytes `position..end` of the object; returns them.
    ///
    /// # Errors
    /// Those of `read`; `Integrity` if the chunk is no frame of these bytes. Whether they are right is for the manifest to say.
    pub fn next(&mut self, position: u64, end: u64, read: Read<'_>) -> Result<&[u8], Fault> {
        let raw = (end - position) as usize;
        let length = self.chunk_length(read)?;
        if length == 0 || length > raw {
            let reason = format!("a frame of {length} bytes for {raw}");
            return Err(self.corrupt(&reason));
        }
        self.bytes.resize(length, 0);
        read_all(&mut self.bytes, read)?;
        self.expect(b"\r\n", read)?;
        let frame = Frame {
            group: position / FRAME_LEN,
            offset: 0,
            length,
            raw,
        };
        match self.decoder.decode(&frame, &self.bytes, &mut self.raw) {
            Ok(()) => Ok(&self.raw),
            Err(error) => Err(self.corrupt(&error.to_string())),
        }
    }

    /// Reads the end of a body.
    ///
    /// # Errors
    /// Those of `read`; `Integrity` if there is more.
    pub fn finish(&self, read: Read<'_>) -> Result<(), Fault> {
        self.expect(LAST_CHUNK, read)
    }

    fn chunk_length(&self, read: Read<'_>) -> Result<usize, Fault> {
        let mut line = ChunkLine::default();
        loop {
            let mut byte = [0; 1];
            read_all(&mut byte, read)?;
            let length = line.push(byte[0]);
            if let Some(length) = length.map_err(|reason| self.corrupt(reason))? {
                return Ok(length);
            }
        }
    }

    fn expect(&self, wanted: &[u8], read: Read<'_>) -> Result<(), Fault> {
        let mut found = vec![0; wanted.len()];
        read_all(&mut found, read)?;
        match found == wanted {
            true => Ok(()),
            false => Err(self.corrupt("a chunk is longer than it says")),
        }
    }

    fn corrupt(&self, reason: &str) -> Fault {
        self.remote.corrupt(reason).into()
    }
}

fn read_all(target: &mut [u8], read: Read<'_>) -> Result<(), Fault> {
    let mut filled = 0;
    while filled < target.len() {
        filled += read(&mut target[filled..])?;
    }
    Ok(())
}
