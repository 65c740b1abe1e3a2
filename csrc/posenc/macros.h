#pragma once

/// POSENC_API marks what the shared library exports; everything else is hidden.
/// POSENC_HOST_DEVICE marks the functions that the host compiler and nvcc both compile, from the same source.

#if defined(_WIN32)
#if defined(POSENC_BUILDING_LIBRARY)
#define POSENC_API __declspec(dllexport)
#else
#define POSENC_API __declspec(dllimport)
#endif
#else
#define POSENC_API __attribute__((visibility("default")))
#endif

#if defined(__CUDACC__)
#define POSENC_HOST_DEVICE __host__ __device__
#else
#define POSENC_HOST_DEVICE
#endif
