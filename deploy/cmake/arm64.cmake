# Builds for aarch64 on another machine: Debian's cross gcc, Debian's libraries for arm64 in a
# folder of this user (deploy/setup --arm64), and QEMU to run what was built. Preset arm64 uses it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

if(DEFINED ENV{TB_ARM64_SYSROOT})
  set(CMAKE_SYSROOT $ENV{TB_ARM64_SYSROOT})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(CMAKE_SYSROOT $ENV{XDG_CACHE_HOME}/tombolo-arm64)
else()
  set(CMAKE_SYSROOT $ENV{HOME}/.cache/tombolo-arm64)
endif()
if(NOT EXISTS ${CMAKE_SYSROOT}/usr/include/zstd.h)
  message(FATAL_ERROR "${CMAKE_SYSROOT} has no libraries for arm64: deploy/setup --arm64 puts them there")
endif()

# Programs are this machine's; headers and libraries are the other one's alone.
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
