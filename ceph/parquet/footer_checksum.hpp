//! A checksum of the Parquet footer, which Parquet does not have. rawduck writes it to an extended attribute
//! of the object, and the object class verifies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace rawduck_ceph {

constexpr const char *FOOTER_ATTRIBUTE = "rawduck.footer_crc32c";

//! A Parquet file ends with the length of its metadata (4 bytes, little-endian) and the magic.
constexpr uint64_t PARQUET_TAIL_BYTES = 8;
constexpr char PARQUET_MAGIC[4] = {'P', 'A', 'R', '1'};

//! The length of the metadata of a whole Parquet file. False when it is none.
bool FindMetadata(const char *object, uint64_t size, uint64_t &metadata_bytes);

//! CRC32C of the metadata and the tail.
uint32_t FooterCrc(const char *footer, size_t length);

//! The attribute's value for an object with this content: the checksum and the object's size. The size
//! invalidates the value when another program replaces the object and keeps its attributes. A new object of the same
//! size does not match the value: the class does not answer for it, and it is read. Empty when it is no Parquet file.
std::string FooterAttributeOf(const char *object, uint64_t size);

//! False when the value is not for an object of this size.
bool ReadFooterAttribute(const std::string &value, uint64_t size, uint32_t &crc);

} // namespace rawduck_ceph
