//! Renames a finished file of an ordinary file system to its final name.
#pragma once

#include <string>

namespace rawduck {

//! Both rename a file within its directory, atomically, and are durable on return. They throw Error, before
//! anything is changed where the new name could not be made durable.

//! Never replaces anything: throws EXISTS, and both files stay as they are.
void RenameToNewName(const std::string &from, const std::string &to);
//! Replaces what is there, which the caller has locked.
void RenameReplacing(const std::string &from, const std::string &to);

} // namespace rawduck
