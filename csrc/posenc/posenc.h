#pragma once

/// Everything a C++ user of posenc needs: the operators as typed functions, and the modules.

#include <posenc/macros.h>
#include <posenc/math/convention.h>
#include <posenc/nn/positional_encoding.h>
#include <posenc/ops/add.h>
#include <posenc/ops/add_dropout.h>
#include <posenc/ops/encode.h>
#include <posenc/ops/library.h>
#include <posenc/version.h>
