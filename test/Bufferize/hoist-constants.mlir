// RUN: saccade-opt %s --split-input-file --attn-hoist-constants | FileCheck %s

// EXAMPLE
// Computations of %w alone move to the prepack function, and so does %w; %b is still read by the entry and kept.
// CHECK:       module attributes {attn.entries = [
// CHECK-LABEL: func.func @project__prepack.body(
// CHECK-SAME:    %[[W:[a-z0-9]+]]: memref<4x8xf32, strided<[?, ?], offset: ?>> {attn.constant}, %[[OUT:[a-z0-9]+]]: memref<2x4x16xf32, strided<[?, ?, ?], offset: ?>>)
// CHECK-SAME:    attn.entry = {name = "project__prepack", names = ["w", "w_prepacked"], type = (tensor<4x8xf32>) -> tensor<2x4x16xf32>}
// CHECK-SAME:    attn.prepacks = "1 tensor, 0.0 MiB"
// CHECK:         %[[PANELS:.*]] = memref.alloc() : memref<2x4x16xf32>
// CHECK:         attn.launch @project_task0(%[[W]], %[[PANELS]])
// CHECK:         attn.launch @project__prepack.copy0(%[[PANELS]], %[[OUT]]) count(%{{.*}}) : (memref<2x4x16xf32>, memref<2x4x16xf32, strided<[?, ?, ?], offset: ?>>)
// CHECK:       func.func @project__prepack.shapes(
// CHECK-SAME:    attn.shapes_of = "project__prepack"
// CHECK:         return %[[ZERO:.*]], %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} : index, index, index, index, index, index, index
// CHECK-LABEL: func.func @project.body(
// CHECK-SAME:    %[[X:[a-z0-9]+]]: memref<?x4xf32, strided<[?, ?], offset: ?>>, %[[B:[a-z0-9]+]]: memref<8xf32, strided<[?], offset: ?>> {attn.constant},
// CHECK-SAME:    %[[PREPARED:[a-z0-9]+]]: memref<2x4x16xf32, strided<[?, ?, ?], offset: ?>>, %[[Y:[a-z0-9]+]]: memref<?x8xf32, strided<[?, ?], offset: ?>>)
// CHECK-SAME:    names = ["x", "b", "w_prepacked", "y"], type = (tensor<?x4xf32>, tensor<8xf32>, tensor<2x4x16xf32>) -> tensor<?x8xf32>
// CHECK-NEXT:    %[[BASE:[a-z_]*]], {{.*}} = memref.extract_strided_metadata %[[PREPARED]]
// CHECK-NEXT:    %[[COMPACT:.*]] = memref.reinterpret_cast %[[BASE]] to offset: [0], sizes: [2, 4, 16], strides: [64, 16, 1]
// CHECK-NOT:     memref.alloc
// CHECK-NOT:     @project_task0
// CHECK:         attn.launch @project_task1(%[[X]], %[[COMPACT]], %[[B]], %[[Y]])
// The shape function checks that the panels are compact.
// CHECK:       func.func @project.shapes(
// CHECK-SAME:    attn.messages = ["argument 'w_prepacked' is not compact as returned by project__prepack: stride of dimension 0\00\00",
// CHECK:         memref.extract_strided_metadata
func.func @project.body(%x: memref<?x4xf32, strided<[?, ?], offset: ?>>, %w: memref<4x8xf32, strided<[?, ?], offset: ?>> {attn.constant},
                        %b: memref<8xf32, strided<[?], offset: ?>> {attn.constant}, %y: memref<?x8xf32, strided<[?, ?], offset: ?>>)
    attributes {attn.entry = {name = "project", names = ["x", "w", "b", "y"], type = (tensor<?x4xf32>, tensor<4x8xf32>, tensor<8xf32>) -> tensor<?x8xf32>}} {
  %c1 = arith.constant 1 : index
  %big = arith.constant true
  scf.if %big {
    %panels = memref.alloc() : memref<2x4x16xf32>
    attn.launch @project_task0(%w, %panels) count(%c1) : (memref<4x8xf32, strided<[?, ?], offset: ?>>, memref<2x4x16xf32>)
    attn.launch @project_task1(%x, %panels, %b, %y) count(%c1) : (memref<?x4xf32, strided<[?, ?], offset: ?>>, memref<2x4x16xf32>, memref<8xf32, strided<[?], offset: ?>>, memref<?x8xf32, strided<[?, ?], offset: ?>>)
  }
  return
}
func.func @project.shapes(%x: memref<?x4xf32, strided<[?, ?], offset: ?>>, %w: memref<4x8xf32, strided<[?, ?], offset: ?>>,
                          %b: memref<8xf32, strided<[?], offset: ?>>) -> (index, index, index, index, index, index)
    attributes {attn.shapes_of = "project", attn.messages = []} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %n = memref.dim %x, %c0 : memref<?x4xf32, strided<[?, ?], offset: ?>>
  return %c0, %c0, %c0, %c0, %n, %c8 : index, index, index, index, index, index
}
func.func private @project_task0(%w: memref<4x8xf32, strided<[?, ?], offset: ?>>, %panels: memref<2x4x16xf32>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %c0 = arith.constant 0 : index
  %e = memref.load %w[%begin, %c0] : memref<4x8xf32, strided<[?, ?], offset: ?>>
  %part = memref.subview %panels[%begin, 0, 0] [1, 4, 16] [1, 1, 1] : memref<2x4x16xf32> to memref<1x4x16xf32, strided<[64, 16, 1], offset: ?>>
  linalg.fill ins(%e : f32) outs(%part : memref<1x4x16xf32, strided<[64, 16, 1], offset: ?>>)
  return
}
func.func private @project_task1(%x: memref<?x4xf32, strided<[?, ?], offset: ?>>, %panels: memref<2x4x16xf32>, %b: memref<8xf32, strided<[?], offset: ?>>, %y: memref<?x8xf32, strided<[?, ?], offset: ?>>, %begin: index, %end: index, %scratch: memref<?xi8>) attributes {attn.task} {
  %e = memref.load %b[%begin] : memref<8xf32, strided<[?], offset: ?>>
  memref.store %e, %y[%begin, %begin] : memref<?x8xf32, strided<[?, ?], offset: ?>>
  return
}

// -----

// A chain is hoisted as a whole, and only its last buffer is a result. Not hoisted: buffers that also depend on %x or to
// which %x is written later, tables of constants, and computations of arguments without attn.constant.
// CHECK-LABEL: func.func @chain__prepack.body(
// CHECK:         %[[FIRST:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         linalg.copy
// CHECK-SAME:      outs(%[[FIRST]] : memref<8xf32>)
// CHECK:         %[[SECOND:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         linalg.exp ins(%[[FIRST]] : memref<8xf32>) outs(%[[SECOND]] : memref<8xf32>)
// CHECK:         attn.launch @chain__prepack.copy0(%[[SECOND]], %{{.*}}) count(%{{.*}})
// CHECK-NEXT:    return
// CHECK:       func.func private @chain__prepack.copy0(
// CHECK:         scf.for %[[ITEM:.*]] = %{{.*}} to
// CHECK:           memref.subview %{{.*}}[%[[ITEM]]] [1] [1]
// CHECK:           linalg.copy
// CHECK-LABEL: func.func @chain.body(
// CHECK-SAME:    names = ["x", "v", "w", "w_prepacked", "y"]
// CHECK:         %[[MIXED:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         %[[LATE:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         %[[ZEROS:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         %[[LEFT:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         %[[RIGHT:.*]] = memref.alloc() : memref<8xf32>
// CHECK:         %[[PLAIN:.*]] = memref.alloc() : memref<8xf32>
// CHECK-COUNT-3: linalg.add
// CHECK:       func.func @chain.shapes
memref.global "private" constant @numbers : memref<8xf32> = dense<1.0>
func.func @chain.body(%x: memref<8xf32>, %v: memref<8xf32>, %w: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "chain", names = ["x", "v", "w", "y"], type = (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>}} {
  %zero = arith.constant 0.0 : f32
  %first = memref.alloc() : memref<8xf32>
  %second = memref.alloc() : memref<8xf32>
  linalg.copy ins(%w : memref<8xf32>) outs(%first : memref<8xf32>)
  linalg.exp ins(%first : memref<8xf32>) outs(%second : memref<8xf32>)
  %mixed = memref.alloc() : memref<8xf32>
  linalg.add ins(%w, %x : memref<8xf32>, memref<8xf32>) outs(%mixed : memref<8xf32>)
  %late = memref.alloc() : memref<8xf32>
  linalg.copy ins(%w : memref<8xf32>) outs(%late : memref<8xf32>)
  linalg.copy ins(%x : memref<8xf32>) outs(%late : memref<8xf32>)
  %zeros = memref.alloc() : memref<8xf32>
  linalg.fill ins(%zero : f32) outs(%zeros : memref<8xf32>)
  // A global constant, and two tables that depend on each other.
  %numbers = memref.get_global @numbers : memref<8xf32>
  linalg.exp ins(%numbers : memref<8xf32>) outs(%zeros : memref<8xf32>)
  %left = memref.alloc() : memref<8xf32>
  %right = memref.alloc() : memref<8xf32>
  linalg.exp ins(%left : memref<8xf32>) outs(%right : memref<8xf32>)
  linalg.exp ins(%right : memref<8xf32>) outs(%left : memref<8xf32>)
  linalg.exp ins(%left : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.exp ins(%right : memref<8xf32>) outs(%y : memref<8xf32>)
  %plain = memref.alloc() : memref<8xf32>
  linalg.copy ins(%v : memref<8xf32>) outs(%plain : memref<8xf32>)
  linalg.add ins(%second, %mixed : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.add ins(%late, %zeros : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.add ins(%plain, %x : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @chain.shapes(%x: memref<8xf32>, %v: memref<8xf32>, %w: memref<8xf32>) -> (index, index, index, index, index)
    attributes {attn.shapes_of = "chain", attn.messages = []} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  return %c0, %c0, %c0, %c0, %c8 : index, index, index, index, index
}

// -----

// A buffer that the entry reads before its last write is not hoisted.
// CHECK-LABEL: func.func @twice.body(
// CHECK-COUNT-2: linalg.copy
// CHECK-NOT:   __prepack
func.func @twice.body(%v: memref<8xf32> {attn.constant}, %w: memref<8xf32> {attn.constant}, %y: memref<8xf32>, %z: memref<8xf32>)
    attributes {attn.entry = {name = "twice", names = ["v", "w", "y", "z"], type = (tensor<8xf32>, tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>)}} {
  %both = memref.alloc() : memref<8xf32>
  linalg.copy ins(%v : memref<8xf32>) outs(%both : memref<8xf32>)
  linalg.exp ins(%both : memref<8xf32>) outs(%y : memref<8xf32>)
  linalg.copy ins(%w : memref<8xf32>) outs(%both : memref<8xf32>)
  linalg.exp ins(%both : memref<8xf32>) outs(%z : memref<8xf32>)
  return
}

// -----

// Not hoisted: computations of tensors with dynamic extents or without elements, which shape checks may have to protect,
// of scalars, and of buffers marked attn.per_call.
// CHECK-NOT:   __prepack
// CHECK-LABEL: func.func @left.body(
// CHECK-COUNT-4: memref.alloc()
func.func @left.body(%w: memref<?xf32> {attn.constant}, %none: memref<0xf32> {attn.constant}, %s: f32 {attn.constant},
                     %v: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "left", names = ["w", "none", "s", "v", "y"], type = (tensor<?xf32>, tensor<0xf32>, f32, tensor<8xf32>) -> tensor<8xf32>}} {
  %open = memref.alloc() : memref<8xf32>
  %part = memref.subview %w[0] [8] [1] : memref<?xf32> to memref<8xf32, strided<[1]>>
  linalg.exp ins(%part : memref<8xf32, strided<[1]>>) outs(%open : memref<8xf32>)
  %empty = memref.alloc() : memref<1xf32>
  %first = memref.reinterpret_cast %none to offset: [0], sizes: [1], strides: [1] : memref<0xf32> to memref<1xf32>
  linalg.exp ins(%first : memref<1xf32>) outs(%empty : memref<1xf32>)
  %scalar = memref.alloc() : memref<8xf32>
  linalg.fill ins(%s : f32) outs(%scalar : memref<8xf32>)
  %mine = memref.alloc() {attn.per_call} : memref<8xf32>
  linalg.exp ins(%v : memref<8xf32>) outs(%mine : memref<8xf32>)
  linalg.add ins(%open, %scalar : memref<8xf32>, memref<8xf32>) outs(%y : memref<8xf32>)
  memref.copy %empty, %first : memref<1xf32> to memref<1xf32>
  linalg.exp ins(%mine : memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @left.shapes(%w: memref<?xf32>, %none: memref<0xf32>, %s: f32, %v: memref<8xf32>) -> (index, index, index, index, index)
    attributes {attn.shapes_of = "left", attn.messages = []} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  return %c0, %c0, %c0, %c0, %c8 : index, index, index, index, index
}

// -----

// Nothing is hoisted from an entry with a check that always fails, whether it is the only check or follows another.
// CHECK-NOT:   __prepack
// CHECK-LABEL: func.func @never.body(
// CHECK:         memref.alloc
// CHECK-LABEL: func.func @neither.body(
// CHECK:         memref.alloc
func.func @never.body(%w: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "never", names = ["w", "y"], type = (tensor<8xf32>) -> tensor<8xf32>}} {
  %made = memref.alloc() : memref<8xf32>
  linalg.exp ins(%w : memref<8xf32>) outs(%made : memref<8xf32>)
  linalg.exp ins(%made : memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @never.shapes(%w: memref<8xf32>) -> (index, index, index, index, index)
    attributes {attn.shapes_of = "never", attn.messages = ["so"]} {
  %c1 = arith.constant 1 : index
  return %c1, %c1, %c1, %c1, %c1 : index, index, index, index, index
}
func.func @neither.body(%x: memref<?xf32>, %w: memref<8xf32> {attn.constant}, %y: memref<8xf32>)
    attributes {attn.entry = {name = "neither", names = ["x", "w", "y"], type = (tensor<?xf32>, tensor<8xf32>) -> tensor<8xf32>}} {
  %made = memref.alloc() : memref<8xf32>
  linalg.exp ins(%w : memref<8xf32>) outs(%made : memref<8xf32>)
  linalg.exp ins(%made : memref<8xf32>) outs(%y : memref<8xf32>)
  return
}
func.func @neither.shapes(%x: memref<?xf32>, %w: memref<8xf32>) -> (index, index, index, index, index)
    attributes {attn.shapes_of = "neither", attn.messages = ["mostly", "so"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %n = memref.dim %x, %c0 : memref<?xf32>
  %isBad = arith.cmpi ne, %n, %c2 : index
  %first = arith.select %isBad, %c1, %c0 : index
  %isFirst = arith.cmpi eq, %first, %c0 : index
  %second = arith.select %isFirst, %c2, %first : index
  return %second, %c0, %c0, %c0, %c1 : index, index, index, index, index
}
