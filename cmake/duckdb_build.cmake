# The extension inside DuckDB's own build (extension_config.cmake): the archive rawduck_extension, for programs that link
# it in, and rawduck.duckdb_extension, which with EXTENSION_STATIC_BUILD=1 has DuckDB's code inside and so loads into every
# DuckDB of this release, also into those that export no symbols. DuckDB's build stamps it.
if(NOT DUCKDB_VERSION STREQUAL RAWDUCK_DUCKDB_VERSION)
  message(FATAL_ERROR "rawduck is for DuckDB ${RAWDUCK_DUCKDB_VERSION}, and this is the source of ${DUCKDB_VERSION}; "
                      "check out ${RAWDUCK_DUCKDB_VERSION}, or say -DDUCKDB_EXPLICIT_VERSION=${RAWDUCK_DUCKDB_VERSION} "
                      "where the source has no tags")
endif()

build_extension_library(rawduck ${RAWDUCK_EXTENSION_SOURCES} ${RAWDUCK_CORE_SOURCES})
target_include_directories(rawduck_extension PRIVATE src)
# DuckDB's headers are not ours to warn about.
target_include_directories(rawduck_extension SYSTEM PRIVATE ${DUCKDB_MODULE_BASE_DIR}/src/include
                           ${DUCKDB_MODULE_BASE_DIR}/third_party/utf8proc/include)
target_compile_definitions(rawduck_extension PRIVATE RAWDUCK_DUCKDB_VERSION="${RAWDUCK_DUCKDB_VERSION}"
                                                     RAWDUCK_VERSION="${PROJECT_VERSION}")
# Several sources that read DuckDB's headers at once, as in cmake/extension.cmake.
set_target_properties(rawduck_extension PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
set(RAWDUCK_KERNELS_TARGET rawduck_extension)
include(cmake/gpu_kernels.cmake)
set_source_files_properties(${RAWDUCK_CORE_SOURCES} ${RAWDUCK_GPU_IMAGES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_libraries(rawduck_extension Threads::Threads PkgConfig::BLKID PkgConfig::LIBURING ${CMAKE_DL_LIBS})
install(TARGETS rawduck_extension EXPORT "${DUCKDB_EXPORT_SET}" LIBRARY DESTINATION "${INSTALL_LIB_DIR}"
        ARCHIVE DESTINATION "${INSTALL_LIB_DIR}")
