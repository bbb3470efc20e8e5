//! The functions that SQLCipher calls. Their types are those of `struct sqlcipher_provider` in `sqlcipher.c`.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::{ptr, slice};

use aes::Aes256;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Sha256, Sha512};

const SQLITE_OK: c_int = 0;
const SQLITE_ERROR: c_int = 1;

/// SQLCipher's numbers of the hash functions, for HMAC and PBKDF2. Number 0, SHA-1, is for files of SQLCipher 3, which
/// Hob never wrote.
const SHA256: c_int = 1;
const SHA512: c_int = 2;

const DECRYPT: c_int = 0;
const ENCRYPT: c_int = 1;

const KEY_BYTES: usize = 32;
const BLOCK_BYTES: usize = 16;

type Context = *mut c_void;

#[repr(C)]
pub struct Provider {
    init: Option<extern "C" fn() -> c_int>,
    shutdown: Option<extern "C" fn()>,
    get_provider_name: extern "C" fn(Context) -> *const c_char,
    add_random: extern "C" fn(Context, *const c_void, c_int) -> c_int,
    random: unsafe extern "C" fn(Context, *mut c_void, c_int) -> c_int,
    hmac: HmacFunction,
    kdf: KeyDerivationFunction,
    cipher: CipherFunction,
    get_cipher: extern "C" fn(Context) -> *const c_char,
    get_key_sz: extern "C" fn(Context) -> c_int,
    get_iv_sz: extern "C" fn(Context) -> c_int,
    get_block_sz: extern "C" fn(Context) -> c_int,
    get_hmac_sz: extern "C" fn(Context, c_int) -> c_int,
    ctx_init: extern "C" fn(*mut Context) -> c_int,
    ctx_free: extern "C" fn(*mut Context) -> c_int,
    fips_status: extern "C" fn(Context) -> c_int,
    get_provider_version: extern "C" fn(Context) -> *const c_char,
    /// SQLCipher's own list of providers. Only SQLCipher writes it.
    next: *mut Provider,
}

type HmacFunction = unsafe extern "C" fn(
    Context,
    c_int,
    *const c_uchar,
    c_int,
    *const c_uchar,
    c_int,
    *const c_uchar,
    c_int,
    *mut c_uchar,
) -> c_int;

type KeyDerivationFunction = unsafe extern "C" fn(
    Context,
    c_int,
    *const c_uchar,
    c_int,
    *const c_uchar,
    c_int,
    c_int,
    c_int,
    *mut c_uchar,
) -> c_int;

type CipherFunction = unsafe extern "C" fn(
    Context,
    c_int,
    *const c_uchar,
    c_int,
    *const c_uchar,
    *const c_uchar,
    c_int,
    *mut c_uchar,
) -> c_int;

/// Fills in the functions. SQLCipher calls this once, when SQLite starts; `build.rs` tells it the name.
#[unsafe(no_mangle)]
extern "C" fn hob_sqlcipher_provider(provider: *mut Provider) -> c_int {
    if provider.is_null() {
        return SQLITE_ERROR;
    }
    // SAFETY: SQLCipher passes a provider that it has allocated and that nobody else uses yet. `next` keeps its value.
    unsafe {
        let next = (*provider).next;
        provider.write(Provider {
            init: None,
            shutdown: None,
            get_provider_name: name,
            add_random,
            random,
            hmac,
            kdf,
            cipher,
            get_cipher: cipher_name,
            get_key_sz: key_bytes,
            get_iv_sz: block_bytes,
            get_block_sz: block_bytes,
            get_hmac_sz: hmac_bytes,
            ctx_init: keep_context,
            ctx_free: keep_context,
            fips_status,
            get_provider_version: version,
            next,
        });
    }
    SQLITE_OK
}

extern "C" fn name(_: Context) -> *const c_char {
    c"rustcrypto".as_ptr()
}

extern "C" fn version(_: Context) -> *const c_char {
    c"1".as_ptr()
}

extern "C" fn cipher_name(_: Context) -> *const c_char {
    c"AES-256-CBC".as_ptr()
}

extern "C" fn key_bytes(_: Context) -> c_int {
    KEY_BYTES as c_int
}

extern "C" fn block_bytes(_: Context) -> c_int {
    BLOCK_BYTES as c_int
}

extern "C" fn hmac_bytes(_: Context, algorithm: c_int) -> c_int {
    match algorithm {
        SHA256 => 32,
        SHA512 => 64,
        _ => 0,
    }
}

/// The provider has no state, so a context is nothing.
extern "C" fn keep_context(_: *mut Context) -> c_int {
    SQLITE_OK
}

extern "C" fn fips_status(_: Context) -> c_int {
    0
}

/// The kernel's generator needs no help.
extern "C" fn add_random(_: Context, _: *const c_void, _: c_int) -> c_int {
    SQLITE_OK
}

// SAFETY: the caller passes a buffer of `length` bytes.
unsafe extern "C" fn random(_: Context, buffer: *mut c_void, length: c_int) -> c_int {
    let Some(length) = usize::try_from(length).ok().filter(|_| !buffer.is_null()) else {
        return SQLITE_ERROR;
    };
    // The bytes are set first: a slice must not lead to bytes that nobody has written.
    // SAFETY: as above; nobody else uses the buffer during the call.
    let buffer = unsafe {
        ptr::write_bytes(buffer.cast::<u8>(), 0, length);
        slice::from_raw_parts_mut(buffer.cast::<u8>(), length)
    };
    status(getrandom::fill(buffer).ok())
}

/// Writes the HMAC of `first` and then `second`, which may be null.
// SAFETY: the caller passes inputs of the lengths it names, and an output for the longest hash.
unsafe extern "C" fn hmac(
    _: Context,
    algorithm: c_int,
    key: *const c_uchar,
    key_length: c_int,
    first: *const c_uchar,
    first_length: c_int,
    second: *const c_uchar,
    second_length: c_int,
    out: *mut c_uchar,
) -> c_int {
    // SAFETY: as above. The output is written after the inputs were read.
    unsafe {
        let key = bytes(key, key_length);
        let parts = [bytes(first, first_length), bytes(second, second_length)];
        match algorithm {
            SHA256 => write_hmac(Hmac::<Sha256>::new_from_slice(key).ok(), parts, out),
            SHA512 => write_hmac(Hmac::<Sha512>::new_from_slice(key).ok(), parts, out),
            _ => SQLITE_ERROR,
        }
    }
}

// SAFETY: `out` has room for the hash.
unsafe fn write_hmac<M: Mac>(mac: Option<M>, parts: [&[u8]; 2], out: *mut c_uchar) -> c_int {
    let Some(mut mac) = mac.filter(|_| !out.is_null()) else { return SQLITE_ERROR };
    for part in parts {
        mac.update(part);
    }
    let hash = mac.finalize().into_bytes();
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(hash.as_ptr(), out, hash.len()) };
    SQLITE_OK
}

/// Derives a key from a passphrase and a salt.
// SAFETY: the caller passes inputs of the lengths it names, and an output of `key_length` bytes.
unsafe extern "C" fn kdf(
    _: Context,
    algorithm: c_int,
    passphrase: *const c_uchar,
    passphrase_length: c_int,
    salt: *const c_uchar,
    salt_length: c_int,
    rounds: c_int,
    key_length: c_int,
    key: *mut c_uchar,
) -> c_int {
    let (Ok(rounds), Ok(length)) = (u32::try_from(rounds), usize::try_from(key_length)) else {
        return SQLITE_ERROR;
    };
    if rounds == 0 || key.is_null() {
        return SQLITE_ERROR;
    }
    let mut derived = vec![0; length];
    // SAFETY: as above.
    let (passphrase, salt) =
        unsafe { (bytes(passphrase, passphrase_length), bytes(salt, salt_length)) };
    let done = match algorithm {
        SHA256 => pbkdf2::pbkdf2::<Hmac<Sha256>>(passphrase, salt, rounds, &mut derived).ok(),
        SHA512 => pbkdf2::pbkdf2::<Hmac<Sha512>>(passphrase, salt, rounds, &mut derived).ok(),
        _ => None,
    };
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping(derived.as_ptr(), key, length) };
    derived.fill(0);
    status(done)
}

/// Encrypts or decrypts whole blocks, without padding.
// SAFETY: the caller passes a key and an initialization vector of the lengths that `key_bytes` and `block_bytes` tell,
// an input of `length` bytes, and an output of as many bytes, which may be the input.
unsafe extern "C" fn cipher(
    _: Context,
    mode: c_int,
    key: *const c_uchar,
    key_length: c_int,
    iv: *const c_uchar,
    input: *const c_uchar,
    length: c_int,
    out: *mut c_uchar,
) -> c_int {
    let Ok(length) = usize::try_from(length) else { return SQLITE_ERROR };
    let null = key.is_null() || iv.is_null() || input.is_null() || out.is_null();
    if null || key_length != KEY_BYTES as c_int || !length.is_multiple_of(BLOCK_BYTES) {
        return SQLITE_ERROR;
    }
    // SAFETY: as above. The input is copied to the output first, so that only the output is used afterwards.
    let (key, iv, blocks) = unsafe {
        ptr::copy(input, out, length);
        let blocks = slice::from_raw_parts_mut(out.cast(), length / BLOCK_BYTES);
        (slice::from_raw_parts(key, KEY_BYTES), slice::from_raw_parts(iv, BLOCK_BYTES), blocks)
    };
    match mode {
        ENCRYPT => status(
            cbc::Encryptor::<Aes256>::new_from_slices(key, iv)
                .ok()
                .map(|mut cipher| cipher.encrypt_blocks(blocks)),
        ),
        DECRYPT => status(
            cbc::Decryptor::<Aes256>::new_from_slices(key, iv)
                .ok()
                .map(|mut cipher| cipher.decrypt_blocks(blocks)),
        ),
        _ => SQLITE_ERROR,
    }
}

/// Returns the bytes at `start`; none, if it is null.
// SAFETY: `start` is null or leads to `length` bytes that nobody changes during the call.
unsafe fn bytes<'a>(start: *const c_uchar, length: c_int) -> &'a [u8] {
    match usize::try_from(length) {
        // SAFETY: as above.
        Ok(length) if !start.is_null() => unsafe { slice::from_raw_parts(start, length) },
        _ => &[],
    }
}

fn status(done: Option<()>) -> c_int {
    match done {
        Some(()) => SQLITE_OK,
        None => SQLITE_ERROR,
    }
}
