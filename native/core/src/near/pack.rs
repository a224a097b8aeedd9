//! The bytes of a coded target: control and literals, then the differences, each compressed by zstd.
//!
//! Two varints come first: the length of the control part, and that of the first compressed part. Control and literals are compressed together, with
//! the reference as prefix, since the reader has it at hand; the differences, which look like neither, without.

use zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

use super::align::Copy;
use super::code::{max_control, Contradiction, Parts};
use diffcache_base::varint;

/// Most bytes of a target and its reference together that zstd looks back to.
const WINDOW_LOG: u32 = 21;

/// Control and literals of fewer bytes than this are compressed without looking at the reference. They are decompressed like all others.
const SHORT: usize = 96;

/// Why bytes could not be packed or unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// The bytes are no packed target, or that of another reference.
    #[error(transparent)]
    Contradiction(#[from] Contradiction),
    /// zstd failed.
    #[error("zstd: {0}")]
    Zstd(&'static str),
}

impl PackError {
    fn from_zstd(code: usize) -> PackError {
        PackError::Zstd(zstd_safe::get_error_name(code))
    }
}

/// Packs targets; holds compression contexts.
pub struct Packer {
    text: CCtx<'static>,
    differences: CCtx<'static>,
}

impl Packer {
    /// Creates a packer for levels of zstd: that of literals, and that of differences.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn new(text: i32, differences: i32) -> Result<Packer, PackError> {
        Ok(Packer {
            text: context(text)?,
            differences: context(differences)?,
        })
    }

    /// Packs a target. The copies are in order, do not overlap, and their places are in the reference. All but the first and the last have at least
    /// `MIN_SCORE` bytes, as those of an aligner have: a reader takes no more of them.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn pack(
        &mut self,
        target: &[u8],
        copies: &[Copy],
        reference: &[u8],
    ) -> Result<Vec<u8>, PackError> {
        let parts = Parts::encode(target, copies, reference);
        let text = [parts.control.as_slice(), &parts.literals].concat();
        // Looking for matches in the reference has to pay for taking note of all of it.
        let prefix = match text.len() < SHORT {
            true => &[],
            false => reference,
        };
        let first = compress_after(&mut self.text, prefix, &text)?;
        let second = compress_after(&mut self.differences, &[], &parts.differences)?;
        let mut out = Vec::with_capacity(first.len() + second.len() + 8);
        varint::put(&mut out, parts.control.len() as u64);
        varint::put(&mut out, first.len() as u64);
        out.extend_from_slice(&first);
        out.extend_from_slice(&second);
        Ok(out)
    }
}

impl Packer {
    /// Compresses a target as it is, with the reference as prefix: smaller than copies where nearly every number is another one.
    ///
    /// # Errors
    /// `Zstd`.
    pub fn compress(&mut self, target: &[u8], reference: &[u8]) -> Result<Vec<u8>, PackError> {
        compress_after(&mut self.text, reference, target)
    }
}

fn context(level: i32) -> Result<CCtx<'static>, PackError> {
    let mut context = CCtx::try_create().ok_or(PackError::Zstd("out of memory"))?;
    let parameters = [
        CParameter::CompressionLevel(level),
        CParameter::WindowLog(WINDOW_LOG),
        CParameter::ContentSizeFlag(false),
    ];
    for parameter in parameters {
        context
            .set_parameter(parameter)
            .map_err(PackError::from_zstd)?;
    }
    Ok(context)
}

/// Compresses `bytes` with `prefix` as what came before.
fn compress_after(
    context: &mut CCtx<'static>,
    prefix: &[u8],
    bytes: &[u8],
) -> Result<Vec<u8>, PackError> {
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
    // SAFETY: only the lifetime changes. The context refers to the prefix until the end of the next frame or reset, and both are below.
    let kept: &'static [u8] = unsafe { &*std::ptr::from_ref(prefix) };
    let done = context
        .ref_prefix(kept)
        .and_then(|_| context.compress2(&mut out, bytes));
    context
        .reset(ResetDirective::SessionOnly)
        .map_err(PackError::from_zstd)?;
    done.map_err(PackError::from_zstd)?;
    Ok(out)
}

/// Unpacks into `target`, whose length must be that of the packed target. Takes at most 2.5 times its length in memory, and 200 KiB, and time linear in it.
///
/// # Errors
/// `Contradiction`, `Zstd`; then the contents of `target` mean nothing.
pub fn unpack(packed: &[u8], reference: &[u8], target: &mut [u8]) -> Result<(), PackError> {
    let mut rest = packed;
    let control_len = take_len(&mut rest)?;
    let first_len = take_len(&mut rest)?;
    if control_len > max_control(target.len()) {
        return Err(Contradiction.into());
    }
    let (first, second) = rest.split_at_checked(first_len).ok_or(Contradiction)?;
    let text = decompress_after(reference, first, control_len + target.len())?;
    let (control, literals) = text.split_at_checked(control_len).ok_or(Contradiction)?;
    let inside = target
        .len()
        .checked_sub(literals.len())
        .ok_or(Contradiction)?;
    let differences = decompress_after(&[], second, inside)?;
    Ok(Parts::decode(
        control,
        literals,
        &differences,
        reference,
        target,
    )?)
}

fn take_len(bytes: &mut &[u8]) -> Result<usize, Contradiction> {
    let len = varint::take(bytes).ok_or(Contradiction)?;
    usize::try_from(len).map_err(|_| Contradiction)
}

/// Decompresses at most `most` bytes.
fn decompress_after(prefix: &[u8], bytes: &[u8], most: usize) -> Result<Vec<u8>, PackError> {
    let mut context = DCtx::try_create().ok_or(PackError::Zstd("out of memory"))?;
    let mut out = Vec::with_capacity(most);
    context.ref_prefix(prefix).map_err(PackError::from_zstd)?;
    context
        .decompress(&mut out, bytes)
        .map_err(PackError::from_zstd)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::noise;

    fn sample() -> (Vec<u8>, Vec<u8>, Vec<Copy>) {
        let reference = noise(1, 40_000);
        let mut target = [
            &reference[5000..20_000],
            &noise(2, 333),
            &reference[100..9000],
        ]
        .concat();
        target.iter_mut().step_by(50).for_each(|byte| *byte ^= 3);
        let copy = |at, len, from| Copy { at, len, from };
        (
            reference,
            target,
            vec![copy(0, 15_000, 5000), copy(15_333, 8900, 100)],
        )
    }

    #[test]
    fn a_target_is_unpacked_as_it_was() {
        let (reference, target, copies) = sample();
        let mut packer = Packer::new(3, 3).unwrap();
        let packed = packer.pack(&target, &copies, &reference).unwrap();
        assert!(packed.len() < 1500, "{}", packed.len());
        let mut out = vec![0xaa; target.len()];
        unpack(&packed, &reference, &mut out).unwrap();
        assert!(out == target);
        let whole = packer.compress(&target, &reference).unwrap();
        assert!(decompress_after(&reference, &whole, target.len()).unwrap() == target);
    }

    #[test]
    fn another_length_or_reference_is_refused() {
        let (reference, target, copies) = sample();
        let packed = Packer::new(3, 3)
            .unwrap()
            .pack(&target, &copies, &reference)
            .unwrap();
        for len in [0, target.len() - 1, target.len() + 1] {
            assert!(unpack(&packed, &reference, &mut vec![0; len]).is_err());
        }
        let mut out = vec![0; target.len()];
        assert!(unpack(&packed, &reference[..9000], &mut out).is_err());
        for len in 0..packed.len() {
            assert!(unpack(&packed[..len], &reference, &mut out).is_err());
        }
    }
}
