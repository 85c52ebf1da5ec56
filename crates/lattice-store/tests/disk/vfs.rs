//! The disk as SQLite's file layer. The only unsafe code of the crate, and only of its tests.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Once;

use rusqlite::ffi;

use super::{NoPower, Pending, with};

/// An open file, as SQLite allocates it: its own part first.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    /// Name of the file, leaked by [`open`] and freed by [`close`].
    name: *mut String,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(lock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

/// Makes the disk the file layer of every database that is opened without naming another.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let vfs = Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: size_of::<Handle>() as c_int,
            mxPathname: 1_024,
            pNext: ptr::null_mut(),
            zName: c"crash".as_ptr(),
            pAppData: ptr::null_mut(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_pathname),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: Some(last_error),
            xCurrentTimeInt64: None,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        }));
        // SAFETY: the structure lives for ever and all its functions are set that SQLite calls here.
        let rc = unsafe { ffi::sqlite3_vfs_register(vfs, 1) };
        assert_eq!(rc, ffi::SQLITE_OK);
    });
}

/// SQLite's answer for the disk's.
fn code(result: Result<(), NoPower>) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(NoPower) => ffi::SQLITE_IOERR,
    }
}

/// The name of an open file.
///
/// # Safety
/// `file` was opened by [`open`] and not closed.
unsafe fn name<'a>(file: *mut ffi::sqlite3_file) -> &'a str {
    unsafe { (*(*file.cast::<Handle>()).name).as_str() }
}

/// # Safety
/// `text` is null or a C string.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "temporary".to_owned();
    }
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    unsafe {
        let handle = file.cast::<Handle>();
        let path = text(path);
        if flags & ffi::SQLITE_OPEN_CREATE != 0 {
            with(|disk| {
                disk.files.entry(path.clone()).or_default();
            });
        } else if with(|disk| !disk.files.contains_key(&path)) {
            (*handle).base.pMethods = ptr::null();
            return ffi::SQLITE_CANTOPEN;
        }
        (*handle).name = Box::into_raw(Box::new(path));
        (*handle).base.pMethods = &raw const METHODS;
        if !out.is_null() {
            *out = flags;
        }
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    unsafe { drop(Box::from_raw((*file.cast::<Handle>()).name)) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, into: *mut c_void, amount: c_int, at: i64) -> c_int {
    let (name, into) = unsafe { (name(file), std::slice::from_raw_parts_mut(into.cast::<u8>(), amount as usize)) };
    match with(|disk| disk.read(name, at as usize, into)) {
        Ok(length) if length == into.len() => ffi::SQLITE_OK,
        Ok(_) => ffi::SQLITE_IOERR_SHORT_READ,
        Err(NoPower) => ffi::SQLITE_IOERR_READ,
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, from: *const c_void, amount: c_int, at: i64) -> c_int {
    let (name, from) = unsafe { (name(file), std::slice::from_raw_parts(from.cast::<u8>(), amount as usize)) };
    code(with(|disk| disk.change(name, Pending::Write(at as usize, from.to_vec()))))
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    code(with(|disk| disk.change(unsafe { name(file) }, Pending::Truncate(size as usize))))
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    code(with(|disk| disk.sync(unsafe { name(file) })))
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    unsafe { *size = with(|disk| disk.files.get(name(file)).map_or(0, |file| file.live.len())) as i64 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn check_reserved_lock(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4_096
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    // As SQLite's own layer on Linux: a write changes no byte beside it.
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    region: c_int,
    size: c_int,
    _: c_int,
    out: *mut *mut c_void,
) -> c_int {
    let words = (size as usize).div_ceil(8);
    let at = with(|disk| {
        let regions = disk.shared.entry(unsafe { name(file) }.to_owned()).or_default();
        while regions.len() <= region as usize {
            regions.push(vec![0; words].into_boxed_slice());
        }
        regions[region as usize].as_mut_ptr()
    });
    unsafe { *out = at.cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_lock(_: *mut ffi::sqlite3_file, _: c_int, _: c_int, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn shm_barrier(_: *mut ffi::sqlite3_file) {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    if delete != 0 {
        with(|disk| drop(disk.shared.remove(unsafe { name(file) })));
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, path: *const c_char, _: c_int) -> c_int {
    let path = unsafe { text(path) };
    code(with(|disk| {
        disk.spend()?;
        disk.files.remove(&path);
        Ok(())
    }))
}

unsafe extern "C" fn access(_: *mut ffi::sqlite3_vfs, path: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    unsafe { *out = c_int::from(with(|disk| disk.files.contains_key(&text(path)))) };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_pathname(
    _: *mut ffi::sqlite3_vfs,
    path: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    unsafe {
        let bytes = CStr::from_ptr(path).to_bytes_with_nul();
        if bytes.len() > room as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, amount: c_int, out: *mut c_char) -> c_int {
    let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<u8>(), amount as usize) };
    with(|disk| out.iter_mut().for_each(|byte| *byte = disk.dice.below(256) as u8));
    amount
}

unsafe extern "C" fn sleep(_: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    microseconds
}

unsafe extern "C" fn current_time(_: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    // A Julian day; nothing of ours asks for it.
    unsafe { *out = 2_460_000.5 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    0
}
