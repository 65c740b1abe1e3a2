#[[
posenc_configure_target(<target>): what all our own targets share, and nobody else's.

The result of a kernel is fixed to the bit, so contraction of a*b+c into fma is off everywhere and fma is always
written out. Nothing here may depend on the machine that builds (-march=native) or loosen arithmetic (-ffast-math).
]]
function(posenc_configure_target target)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/csrc> $<INSTALL_INTERFACE:include>)
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20
    CXX_STANDARD_REQUIRED ON
    CXX_EXTENSIONS OFF
    CXX_VISIBILITY_PRESET hidden
    CUDA_STANDARD 20
    CUDA_STANDARD_REQUIRED ON
    CUDA_EXTENSIONS OFF
    CUDA_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wsign-conversion -ffp-contract=off>
    $<$<COMPILE_LANGUAGE:CUDA>:--fmad=false --threads=2 -Xcompiler=-Wall,-Wextra,-ffp-contract=off>)
  if(POSENC_WERROR)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-Werror>
      $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
  if(POSENC_WITH_CUDA)
    target_compile_definitions(${target} PRIVATE POSENC_WITH_CUDA)
  endif()
  if(POSENC_SANITIZE)
    target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${POSENC_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer>)
    target_link_options(${target} PRIVATE -fsanitize=${POSENC_SANITIZE})
  endif()

  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")
    # Position independent as a library is, so that the tests can use the library's precompiled header.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
  else()
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON DEFINE_SYMBOL "")
  endif()
endfunction()
