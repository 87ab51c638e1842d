// Prototypes of the C header have at most 120 columns; the names fill 120 and 121 of them.
// RUN: saccade-compile %s --emit=header -o %t.h && FileCheck %s --strict-whitespace --input-file=%t.h

// CHECK: {{^}}const char *saccade_w(const DLTensor *xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns62, DLTensor *result);
func.func @w(%xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns62: tensor<?xf32>) -> tensor<?xf32> {
  return %xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns62 : tensor<?xf32>
}

// CHECK: {{^}}const char *saccade_g(const DLTensor *xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns_63,
// CHECK-NEXT: {{^}}                      DLTensor *result);
func.func @g(%xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns_63: tensor<?xf32>) -> tensor<?xf32> {
  return %xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx_columns_63 : tensor<?xf32>
}
