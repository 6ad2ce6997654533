package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// packages are the packages of the lock, except those in nested modules. Each package comes before the packages that import it, directly or
// in their tests. The command removes guards from these packages, and their tests have to detect that. This is the only list of these
// packages.
var packages = []string{
	"mutexbool", "internal/clock", "internal/lease", "internal/retry", "internal/second", "internal/notice",
	"internal/queue", "internal/zkqueue", "internal/zknode/internal/link", "internal/zknode", "tier", "zklock", "zklock/dropin", "election",
	"slots",
}

// findAll returns the mutants of the packages below root.
func findAll(root string) ([]mutant, error) {
	var all []mutant
	for _, pkg := range packages {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			src, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			mutants, err := find(path.Join(pkg, filepath.Base(file)), src)
			if err != nil {
				return nil, err
			}
			all = append(all, mutants...)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no mutants below %s: not the root of the module?", root)
	}
	return all, nil
}

// A finder finds the guards in one function.
type finder struct {
	file     string
	src      []byte
	base     token.Pos // position of the start of the file
	function string
	seen     map[string]int // how often each name of a mutant was used
	found    []mutant
}

// The function find returns the mutants of one file.
func find(file string, src []byte) ([]mutant, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(tree) {
		return nil, err
	}
	f := &finder{file: file, src: src, base: tree.FileStart, seen: make(map[string]int)}
	for _, d := range tree.Decls {
		if d, ok := d.(*ast.FuncDecl); ok && d.Body != nil {
			f.function = d.Name.Name
			if d.Recv != nil {
				f.function = strings.TrimPrefix(f.text(d.Recv.List[0].Type), "*") + "." + f.function
			}
			ast.Inspect(d.Body, f.visit)
		}
	}
	return f.found, nil
}

func (f *finder) at(p token.Pos) int { return int(p - f.base) }

// The method text returns the source of a node.
func (f *finder) text(n ast.Node) string { return string(f.src[f.at(n.Pos()):f.at(n.End())]) }

// The method replace returns an edit that replaces n by text. In text, %s stands for the source of n.
func (f *finder) replace(n ast.Node, text string) edit {
	return edit{f.at(n.Pos()), f.at(n.End()), strings.ReplaceAll(text, "%s", f.text(n))}
}

// The method add records a mutant. In change, %s stands for the source of n in one line.
func (f *finder) add(change string, n ast.Node, edits ...edit) {
	m := mutant{file: f.file, function: f.function, edits: edits}
	m.change = strings.ReplaceAll(change, "%s", brief(f.text(n)))
	f.seen[m.String()]++
	m.nth = f.seen[m.String()]
	f.found = append(f.found, m)
}

func brief(text string) string {
	const most = 100
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		text = string(r[:most]) + "…"
	}
	return text
}

// visit finds the mutants at n. A mutant that replaces a condition still evaluates the old one. Therefore the code compiles, and side
// effects stay.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		f.condition(n)
	case *ast.BinaryExpr:
		f.operator(n)
	case *ast.SwitchStmt:
		f.cases(n)
	case *ast.CommClause:
		f.communication(n)
	case *ast.CallExpr:
		f.atomic(n)
	case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.AssignStmt, *ast.IncDecStmt:
		if dropped(n) {
			f.add("without %s", n, f.replace(n, "if false { %s }"))
		}
	}
	switch n := n.(type) {
	case *ast.BlockStmt:
		f.order(n.List)
	case *ast.CaseClause:
		f.order(n.Body)
	case *ast.CommClause:
		f.order(n.Body)
	}
	return true
}

func (f *finder) never(c ast.Expr)  { f.add("never %s", c, f.replace(c, "((%s) && false)")) }
func (f *finder) always(c ast.Expr) { f.add("always %s", c, f.replace(c, "((%s) || true)")) }

// The method condition finds the mutants of an if statement. If the statement is an early return, one mutant removes it. For any other if
// statement there are two mutants, one for each branch, because either branch may be the guard.
func (f *finder) condition(n *ast.IfStmt) {
	f.never(n.Cond)
	if n.Else != nil || !jumps(n.Body) {
		f.always(n.Cond)
	}
}

func jumps(b *ast.BlockStmt) bool {
	if len(b.List) == 0 {
		return false
	}
	switch b.List[len(b.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		return true
	}
	return false
}

// The method operator finds the mutants of a binary expression. A mutant drops one operand of a conjunction or disjunction, or moves a
// bound by one.
func (f *finder) operator(n *ast.BinaryExpr) {
	neutral := map[token.Token]string{token.LAND: "(%s || true)", token.LOR: "(%s && false)"}
	switch n.Op {
	case token.LAND, token.LOR:
		for _, operand := range []ast.Expr{n.X, n.Y} {
			if b, ok := operand.(*ast.BinaryExpr); ok && b.Op == n.Op {
				continue // the operands of this operand are visited separately
			}
			f.add("without "+n.Op.String()+" %s", operand, f.replace(operand, strings.ReplaceAll(neutral[n.Op], "%s", "(%s)")))
		}
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		other := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[n.Op]
		at := f.at(n.OpPos)
		f.add("with "+other+" in %s", n, edit{at, at + len(n.Op.String()), other})
	}
}

// The method cases finds the mutants of a switch. Each removes one case.
func (f *finder) cases(n *ast.SwitchStmt) {
	for _, s := range n.Body.List {
		c := s.(*ast.CaseClause)
		switch {
		case n.Tag == nil:
			for _, e := range c.List {
				f.never(e)
			}
		case len(c.List) == 1:
			f.add("without case %s", c.List[0], f.replace(c, ""))
		}
	}
}

// The method communication finds a mutant that disables one case of a select. The channel of that case is never ready.
func (f *finder) communication(n *ast.CommClause) {
	if n.Comm == nil {
		f.add("without default", n, f.replace(n, ""))
		return
	}
	ast.Inspect(n.Comm, func(e ast.Node) bool {
		if r, ok := e.(*ast.UnaryExpr); ok && r.Op == token.ARROW {
			end := len(f.src)
			f.add("without case <-%s", r.X, f.replace(r.X, "mutantNever(%s)"),
				edit{end, end, "\nfunc mutantNever[T any](<-chan T) <-chan T { return nil }\n"})
			return false
		}
		return true
	})
}

// The method atomic finds the mutants of a swap. In one, the flag is read but not set; in the other, every caller succeeds.
func (f *finder) atomic(n *ast.CallExpr) {
	method, ok := n.Fun.(*ast.SelectorExpr)
	switch {
	case !ok:
	case method.Sel.Name == "Swap" && len(n.Args) == 1:
		load := f.text(method.X) + ".Load()"
		f.add("read only %s", n, f.replace(n, load))
	case method.Sel.Name == "CompareAndSwap" && len(n.Args) == 2:
		f.always(n)
	}
}

// The function dropped reports whether a statement may be a guard: it calls a function for its effect, or sets a field or a flag. Logging
// is no guard. Calls of mutexes are left out, because the race detector tests them.
func dropped(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		return ok && effective(call)
	case *ast.DeferStmt:
		return effective(n.Call)
	case *ast.GoStmt:
		return true
	case *ast.IncDecStmt:
		return !isIdent(n.X)
	case *ast.AssignStmt:
		return n.Tok != token.DEFINE && (!slices.ContainsFunc(n.Lhs, isIdent) || isFlag(n.Rhs[0]))
	}
	return false
}

func isIdent(e ast.Expr) bool {
	_, ok := e.(*ast.Ident)
	return ok
}

func isFlag(e ast.Expr) bool {
	id, ok := e.(*ast.Ident)
	return ok && (id.Name == "true" || id.Name == "false")
}

var ineffective = map[string]bool{
	"Lock": true, "Unlock": true, "RLock": true, "RUnlock": true,
	"Debug": true, "Info": true, "Warn": true, "Error": true,
	"panic": true, "Helper": true,
}

func effective(call *ast.CallExpr) bool {
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		return !ineffective[fun.Name]
	case *ast.SelectorExpr:
		return !ineffective[fun.Sel.Name]
	}
	return true
}

// The method order finds mutants that swap two neighboring statements if one or both are calls. Two stores are not swapped, since their
// order cannot be observed. A store and the call that publishes its value are not swapped either, because the race detector tests that.
func (f *finder) order(list []ast.Stmt) {
	for i := range len(list) - 1 {
		a, b := list[i], list[i+1]
		if movable(a) && movable(b) && (isCall(a) || isCall(b)) && !(isStore(a) && publishes(b)) {
			between := string(f.src[f.at(a.End()):f.at(b.Pos())])
			if strings.Contains(between, "//") {
				between = "\n"
			}
			whole := edit{f.at(a.Pos()), f.at(b.End()), f.text(b) + between + f.text(a)}
			f.add("after the next: %s", a, whole)
		}
	}
}

func movable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.ExprStmt, *ast.IncDecStmt:
		return dropped(s)
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	}
	return false
}

func isStore(s ast.Stmt) bool {
	_, call := s.(*ast.ExprStmt)
	return !call || !isCall(s)
}

func isCall(s ast.Stmt) bool {
	name := callee(s)
	return name != "" && name != "delete" && name != "clear" // delete and clear count as stores
}

func publishes(s ast.Stmt) bool {
	switch callee(s) {
	case "close", "Store", "Go", "spawn":
		return true
	}
	return false
}

// callee returns the name of the function that a statement calls. If the statement is no call, it returns "".
func callee(s ast.Stmt) string {
	e, ok := s.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	switch fun := e.X.(*ast.CallExpr).Fun.(type) {
	case *ast.Ident:
		return fun.Name
	case *ast.SelectorExpr:
		return fun.Sel.Name
	}
	return "func"
}
