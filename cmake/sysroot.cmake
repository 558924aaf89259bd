# Toolchain file of wheels: clang against a C library, and a libstdc++, that are older than this machine's, so that what is
# built loads wherever DuckDB's own wheels do. scripts/make_sysroot.sh makes the folder:
#   cmake -DCMAKE_TOOLCHAIN_FILE=cmake/sysroot.cmake -DRAWDUCK_SYSROOT=<folder> -DRAWDUCK_ARCHITECTURE=aarch64
set(RAWDUCK_ARCHITECTURE x86_64 CACHE STRING "x86_64 or aarch64")
set(RAWDUCK_SYSROOT "" CACHE PATH "Made by scripts/make_sysroot.sh")
# Programs that CMake compiles while it configures read this file, too.
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RAWDUCK_ARCHITECTURE RAWDUCK_SYSROOT)

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR ${RAWDUCK_ARCHITECTURE})
set(CMAKE_SYSROOT ${RAWDUCK_SYSROOT})
set(CMAKE_LIBRARY_ARCHITECTURE ${RAWDUCK_ARCHITECTURE}-linux-gnu)
foreach(RAWDUCK_LANGUAGE C CXX)
  set(CMAKE_${RAWDUCK_LANGUAGE}_COMPILER_TARGET ${CMAKE_LIBRARY_ARCHITECTURE})
endforeach()
set(CMAKE_C_COMPILER clang)
set(CMAKE_CXX_COMPILER clang++)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${RAWDUCK_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${RAWDUCK_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig)
# Named as an option, the folder of the C library's headers would come before those of libstdc++.
set(ENV{PKG_CONFIG_SYSTEM_INCLUDE_PATH} ${RAWDUCK_SYSROOT}/usr/include)
# The libraries inside stay inside: a process may have the system's own libblkid as well.
foreach(RAWDUCK_KIND EXE SHARED MODULE)
  set(CMAKE_${RAWDUCK_KIND}_LINKER_FLAGS_INIT "-fuse-ld=lld -Wl,--exclude-libs,libblkid.a:liburing.a")
endforeach()
