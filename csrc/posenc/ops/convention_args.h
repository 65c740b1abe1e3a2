#pragma once

#include <c10/util/string_view.h>

/// The five convention arguments as the dispatcher hands them over, in the order of every schema. Macros, because each
/// kernel signature must spell them out and they must never differ.
#define POSENC_CONVENTION_PARAMS \
  double base, double freq_shift, double position_scale, c10::string_view order, c10::string_view odd
#define POSENC_CONVENTION_ARGS base, freq_shift, position_scale, order, odd
#define POSENC_CONVENTION_TYPES double, double, double, c10::string_view, c10::string_view

/// The same five of a posenc::Convention.
#define POSENC_CONVENTION_FIELDS(convention)                                                                         \
  (convention).base, (convention).freq_shift, (convention).position_scale, ::posenc::order_name((convention).order), \
      ::posenc::odd_name((convention).odd)
