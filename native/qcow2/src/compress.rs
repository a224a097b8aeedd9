//! Compressing and decompressing clusters exactly as QEMU does.
//!
//! A published image's compressed clusters can be made again from the guest's bytes if the same compressor is used with the same
//! parameters. For deflate that is zlib itself (other implementations of deflate make other streams), which has given the same bytes
//! through all its versions of the last decade; it is linked into this library. zstd changes its output between versions, so the
//! version is one of the parameters: the one linked here, or the system's.

use std::ffi::{c_int, c_void};
use std::mem::size_of;
use std::sync::OnceLock;

use crate::error::Qcow2Error;
use crate::header::Compression;

/// QEMU writes qcow2 with a window of 12 bits, without zlib's header.
const WINDOW: c_int = -12;

/// How the clusters of an image were compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recipe {
    /// zlib's deflate.
    Zlib {
        /// Compression level, 1 to 9.
        level: u8,
        /// Memory level, 1 to 9.
        memory: u8,
    },
    /// zstd at a level, by one version of the library.
    Zstd {
        /// Compression level.
        level: u8,
        /// Version as the library numbers it: major * 10000 + minor * 100 + release.
        version: u32,
    },
}

impl Recipe {
    /// What may have made an image's clusters, the usual first.
    pub fn candidates(compression: Compression) -> Vec<Self> {
        match compression {
            // QEMU's own, then what other writers of the format use.
            Compression::Zlib => [(6, 9), (6, 8), (9, 9), (9, 8), (1, 9), (1, 8)]
                .map(|(level, memory)| Self::Zlib { level, memory })
                .to_vec(),
            Compression::Zstd => {
                let mut versions = vec![zstd_safe::version_number()];
                versions.extend(system_zstd().map(|library| library.version));
                versions.dedup();
                let levels = [3, 1, 19];
                levels
                    .iter()
                    .flat_map(|&level| {
                        versions
                            .iter()
                            .map(move |&version| Self::Zstd { level, version })
                    })
                    .collect()
            }
        }
    }

    /// A compressor that follows this recipe.
    pub fn compressor(self) -> Result<Box<dyn Compress>, Qcow2Error> {
        match self {
            Self::Zlib { level, memory } => Ok(Box::new(Deflate::new(level, memory)?)),
            Self::Zstd { level, version } if version == zstd_safe::version_number() => {
                Ok(Box::new(BundledZstd {
                    context: zstd_safe::CCtx::create(),
                    level,
                }))
            }
            Self::Zstd { level, version } => match system_zstd() {
                Some(library) if library.version == version => {
                    Ok(Box::new(library.compressor(level)?))
                }
                other => Err(missing_zstd(version, other.map(|library| library.version))),
            },
        }
    }
}

fn dotted(version: u32) -> String {
    format!(
        "{}.{}.{}",
        version / 10000,
        version / 100 % 100,
        version % 100
    )
}

fn missing_zstd(wanted: u32, system: Option<u32>) -> Qcow2Error {
    let mut present = dotted(zstd_safe::version_number());
    if let Some(version) = system {
        present = format!("{present} and {}", dotted(version));
    }
    Qcow2Error::Compressor {
        wanted: dotted(wanted),
        present,
    }
}

/// Makes compressed clusters, always the same stream from the same bytes.
pub trait Compress: Send {
    /// Replaces `out` by the compressed stream of `cluster`; false if it is not shorter than the cluster, which QEMU then stores plain.
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error>;
}

/// A zlib stream whose address zlib remembers, so it stays boxed.
struct Deflate(Box<libz_sys::z_stream>);

// SAFETY: a z_stream and the state it points to belong to this value alone and have no thread affinity.
unsafe impl Send for Deflate {}

fn empty_stream() -> Box<libz_sys::z_stream> {
    extern "C" fn allocate(_: *mut c_void, items: u32, size: u32) -> *mut c_void {
        // SAFETY: calloc has no preconditions; zlib checks for null.
        unsafe { libc_calloc(items as usize, size as usize) }
    }
    extern "C" fn release(_: *mut c_void, address: *mut c_void) {
        // SAFETY: zlib passes what `allocate` returned, once.
        unsafe { libc_free(address) }
    }
    Box::new(libz_sys::z_stream {
        next_in: std::ptr::null_mut(),
        avail_in: 0,
        total_in: 0,
        next_out: std::ptr::null_mut(),
        avail_out: 0,
        total_out: 0,
        msg: std::ptr::null_mut(),
        state: std::ptr::null_mut(),
        zalloc: allocate,
        zfree: release,
        opaque: std::ptr::null_mut(),
        data_type: 0,
        adler: 0,
        reserved: 0,
    })
}

extern "C" {
    #[link_name = "calloc"]
    fn libc_calloc(items: usize, size: usize) -> *mut c_void;
    #[link_name = "free"]
    fn libc_free(address: *mut c_void);
}

fn attach(
    stream: &mut libz_sys::z_stream,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Qcow2Error> {
    let too_long = |_| Qcow2Error::damaged("a cluster longer than zlib counts");
    // zlib takes its input mutable and never writes to it.
    stream.next_in = input.as_ptr().cast_mut();
    stream.avail_in = u32::try_from(input.len()).map_err(too_long)?;
    stream.next_out = output.as_mut_ptr();
    stream.avail_out = u32::try_from(output.len()).map_err(too_long)?;
    Ok(())
}

impl Deflate {
    fn new(level: u8, memory: u8) -> Result<Self, Qcow2Error> {
        let mut stream = empty_stream();
        // SAFETY: the stream is initialised, boxed and handed with its own size; the version string is zlib's own.
        let result = unsafe {
            libz_sys::deflateInit2_(
                &mut *stream,
                c_int::from(level),
                libz_sys::Z_DEFLATED,
                WINDOW,
                c_int::from(memory),
                libz_sys::Z_DEFAULT_STRATEGY,
                libz_sys::zlibVersion(),
                size_of::<libz_sys::z_stream>() as c_int,
            )
        };
        match result {
            libz_sys::Z_OK => Ok(Self(stream)),
            libz_sys::Z_MEM_ERROR => Err(Qcow2Error::Memory),
            _ => Err(Qcow2Error::bad_patch(format!(
                "deflate level {level}, memory {memory}"
            ))),
        }
    }
}

impl Compress for Deflate {
    fn compress(&mut self, cluster: &[u8], out: &mut Vec<u8>) -> Result<bool, Qcow2Error> {
        out.clear();
        out.resize(cluster.len(), 0);
        // SAFETY: the stream was initialised by `new`.
        unsafe { libz_sys::deflateReset(&mut *self.0) };
        attach(&mut self.0, cluster, out)?;
        // SAFETY: input and output are the two live slices just attached, which do not overlap.
        let result = unsafe { libz_sys::deflate(&mut *self.0, libz_sys::Z_FINISH) };
        out.truncate(out.len() - self.0.avail_out as usize);
        Ok(result == libz_sys::Z_STREAM_END && out.len() < cluster.len())
    }
}

impl Drop for Deflate {
    fn drop(&mut self) {
        // SAFETY: the stream was initialised by `new` and is not used after this.
        unsafe { libz_sys::deflateEnd(&mut *self.0) };
    }
}

struct BundledZstd {
    context: zstd_safe::CCtx<'static>,
    level: u8,
}

impl Compress for BundledZstd {
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
struct ZstdBuffer {
    address: *mut c_void,
    size: usize,
    position: usize,
}

type CreateContext = unsafe extern "C" fn() -> *mut c_void;
type FreeContext = unsafe extern "C" fn(*mut c_void) -> usize;
type ResetContext = unsafe extern "C" fn(*mut c_void, c_int) -> usize;
type SetParameter = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> usize;
type CompressStream =
    unsafe extern "C" fn(*mut c_void, *mut ZstdBuffer, *mut ZstdBuffer, c_int) -> usize;
type IsError = unsafe extern "C" fn(usize) -> u32;
type VersionNumber = unsafe extern "C" fn() -> u32;

const ZSTD_END: c_int = 2;
const ZSTD_RESET_SESSION: c_int = 1;
const ZSTD_LEVEL: c_int = 100;

/// The system's libzstd, which QEMU on this machine uses.
struct SystemZstd {
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
fn system_zstd() -> Option<&'static SystemZstd> {
    static LIBRARY: OnceLock<Option<SystemZstd>> = OnceLock::new();
    LIBRARY.get_or_init(SystemZstd::load).as_ref()
}

impl SystemZstd {
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
    library: &'static SystemZstd,
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
        let mut output = ZstdBuffer {
            address: out.as_mut_ptr().cast(),
            size: out.len(),
            position: 0,
        };
        let mut input = ZstdBuffer {
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

/// Decompresses `stream` into `cluster`, filling it; returns the stream's true length, which may be less than what was given.
pub fn decompress(
    compression: Compression,
    stream: &[u8],
    cluster: &mut [u8],
) -> Result<usize, Qcow2Error> {
    let used = match compression {
        Compression::Zlib => inflate(stream, cluster)?,
        Compression::Zstd => unzstd(stream, cluster),
    };
    used.ok_or_else(|| Qcow2Error::damaged("a compressed cluster does not decompress"))
}

fn inflate(stream: &[u8], cluster: &mut [u8]) -> Result<Option<usize>, Qcow2Error> {
    let mut state = empty_stream();
    attach(&mut state, stream, cluster)?;
    // SAFETY: the stream is initialised, boxed and handed with its own size; the attached slices are live and do not overlap; it is
    // ended before it is dropped.
    let result = unsafe {
        let size = size_of::<libz_sys::z_stream>() as c_int;
        if libz_sys::inflateInit2_(&mut *state, WINDOW, libz_sys::zlibVersion(), size)
            != libz_sys::Z_OK
        {
            return Err(Qcow2Error::Memory);
        }
        let result = libz_sys::inflate(&mut *state, libz_sys::Z_FINISH);
        libz_sys::inflateEnd(&mut *state);
        result
    };
    let whole = result == libz_sys::Z_STREAM_END && state.avail_out == 0;
    Ok(whole.then_some(stream.len() - state.avail_in as usize))
}

fn unzstd(stream: &[u8], cluster: &mut [u8]) -> Option<usize> {
    let used = zstd_safe::find_frame_compressed_size(stream).ok()?;
    let made = zstd_safe::decompress(cluster, stream.get(..used)?).ok()?;
    (made == cluster.len()).then_some(used)
}
