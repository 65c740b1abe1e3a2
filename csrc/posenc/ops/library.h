#pragma once

#include <posenc/macros.h>

namespace posenc {

/// Does nothing if the operators are registered, as they are once the library is loaded. A program that uses them only
/// by name (through a TorchScript file, say) may call this so that its linker keeps the library.
///
/// Throws c10::Error, naming both versions, if another version of posenc registered its operators first.
POSENC_API void register_ops();

}  // namespace posenc
