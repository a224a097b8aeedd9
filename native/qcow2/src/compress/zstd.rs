//! zstd: the library linked into this one, and the system's, which QEMU on this machine uses.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use super::Compress;
use crate::error::Qcow2Error;

/// Returns the versions of the library that this machine has.
pub(super) fn versions() -> Vec<u32> {
    let mut versions = vec![zstd_safe::version_number()];
    versions.extend(system().map(|library| library.version));
    versions.dedup();
    versions
}

/// Creates a compressor of a level, by one version of the library.
pub(super) fn compressor(level: u8, version: u32) -> Result<Box<dyn Compress>, Qcow2Error> {
    if version == zstd_safe::version_number() {
        return Ok(Box::new(Bundled {
            context: zstd_safe::CCtx::create(),
            level,
        }));
    }
    match system() {
        Some(library) if library.version == version => Ok(Box::new(library.compressor(level)?)),
        other => Err(missing(version, other.map(|library| library.version))),
    }
}

/// Decompresses a frame; returns its length, or `None` if it does not fill `cluster` exactly.
pub(super) fn decompress(stream: &[u8], cluster: &mut [u8]) -> Option<usize> {
    let used = zstd_safe::find_frame_compressed_size(stream).ok()?;
    let made = zstd_safe::decompress(cluster, stream.get(..used)?).ok()?;
    (made == cluster.len()).then_some(used)
}

fn dotted(version: u32) -> String {
    format!(
        "{}.{}.{}",
        version / 10000,
        version / 100 % 100,
        version % 100
    )
}

fn missing(wanted: u32, system: Option<u32>) -> Qcow2Error {
    let mut present = dotted(zstd_safe::version_number());
    if let Some(version) = system {
        present = format!("{present} and {}", dotted(version));
    }
    Qcow2Error::Compressor {
        wanted: dotted(wanted),
        present,
    }
}

struct Bundled {
    context: zstd_safe::CCtx<'static>,
    level: u8,
}

impl Compress for Bundled {
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        out.clear();
        out.resize(cluster.len(), 0);
        let level = zstd_safe::CParameter::CompressionLevel(i32::from(self.level));
        let reset = self.context.reset(zstd_safe::ResetDirective::SessionOnly);
        reset
            .and_then(|_| self.context.set_parameter(level))
            .map_err(|_| Qcow2Error::Memory)?;
        let mut output = zstd_safe::OutBuffer::around(out.as_mut_slice());
        let mut input = zstd_safe::InBuffer::around(cluster);
        let end = zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_end;
        let left = self
            .context
            .compress_stream2(&mut output, &mut input, end)
            .map_err(|_| Qcow2Error::Memory)?;
        let made = output.pos();
        out.truncate(made);
        Ok(left == 0 && made < cluster.len())
    }
}

/// `ZSTD_inBuffer` and `ZSTD_outBuffer`.
#[repr(C)]
struct Buffer {
    address: *mut c_void,
    size: usize,
    position: usize,
}

type CreateContext = unsafe extern "C" fn() -> *mut c_void;
type FreeContext = unsafe extern "C" fn(*mut c_void) -> usize;
type ResetContext = unsafe extern "C" fn(*mut c_void, c_int) -> usize;
type SetParameter = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> usize;
type CompressStream = unsafe extern "C" fn(*mut c_void, *mut Buffer, *mut Buffer, c_int) -> usize;
type IsError = unsafe extern "C" fn(usize) -> u32;
type VersionNumber = unsafe extern "C" fn() -> u32;

const ZSTD_END: c_int = 2;
const ZSTD_RESET_SESSION: c_int = 1;
const ZSTD_LEVEL: c_int = 100;

/// The system's libzstd.
struct System {
    version: u32,
    create: CreateContext,
    free: FreeContext,
    reset: ResetContext,
    set: SetParameter,
    stream: CompressStream,
    is_error: IsError,
    /// Keeps the functions above mapped.
    _library: libloading::Library,
}

/// Loads the system's libzstd once; `None` where there is none.
fn system() -> Option<&'static System> {
    static LIBRARY: OnceLock<Option<System>> = OnceLock::new();
    LIBRARY.get_or_init(System::load).as_ref()
}

impl System {
    fn load() -> Option<Self> {
        // SAFETY: libzstd has no initialisers with effects.
        let library = unsafe { libloading::Library::new("libzstd.so.1") }.ok()?;
        // SAFETY: the types are those of zstd.h's stable interface, unchanged since 1.4.
        unsafe {
            Some(Self {
                version: (*library.get::<VersionNumber>(b"ZSTD_versionNumber\0").ok()?)(),
                create: *library.get(b"ZSTD_createCCtx\0").ok()?,
                free: *library.get(b"ZSTD_freeCCtx\0").ok()?,
                reset: *library.get(b"ZSTD_CCtx_reset\0").ok()?,
                set: *library.get(b"ZSTD_CCtx_setParameter\0").ok()?,
                stream: *library.get(b"ZSTD_compressStream2\0").ok()?,
                is_error: *library.get(b"ZSTD_isError\0").ok()?,
                _library: library,
            })
        }
    }

    fn compressor(&'static self, level: u8) -> Result<SystemCompressor, Qcow2Error> {
        // SAFETY: no preconditions.
        let context = unsafe { (self.create)() };
        if context.is_null() {
            return Err(Qcow2Error::Memory);
        }
        let made = SystemCompressor {
            library: self,
            context,
        };
        // SAFETY: the context is live.
        let result = unsafe { (self.set)(context, ZSTD_LEVEL, c_int::from(level)) };
        made.check(result)?;
        Ok(made)
    }
}

struct SystemCompressor {
    library: &'static System,
    context: *mut c_void,
}

// SAFETY: the context belongs to this value alone and has no thread affinity.
unsafe impl Send for SystemCompressor {}

impl SystemCompressor {
    fn check(&self, result: usize) -> Result<usize, Qcow2Error> {
        // SAFETY: pure function of a number.
        match unsafe { (self.library.is_error)(result) } {
            0 => Ok(result),
            _ => Err(Qcow2Error::Memory),
        }
    }
}

impl Compress for SystemCompressor {
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        out.clear();
        out.resize(cluster.len(), 0);
        let mut output = Buffer {
            address: out.as_mut_ptr().cast(),
            size: out.len(),
            position: 0,
        };
        let mut input = Buffer {
            address: cluster.as_ptr().cast_mut().cast(),
            size: cluster.len(),
            position: 0,
        };
        // SAFETY: the context is live, both buffers describe live slices, and the input is only read.
        let (reset, left) = unsafe {
            let reset = (self.library.reset)(self.context, ZSTD_RESET_SESSION);
            (
                reset,
                (self.library.stream)(self.context, &mut output, &mut input, ZSTD_END),
            )
        };
        self.check(reset)?;
        let left = self.check(left)?;
        out.truncate(output.position);
        Ok(left == 0 && output.position < cluster.len())
    }
}

impl Drop for SystemCompressor {
    fn drop(&mut self) {
        // SAFETY: the context is live and not used after this.
        unsafe { (self.library.free)(self.context) };
    }
}
