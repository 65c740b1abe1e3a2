#pragma once

/// The version of posenc. CMake, setup.py and Python read it from here; it is written nowhere else.
#define POSENC_VERSION "0.1.0"
